#include "cluster/database/result_bundle.h"

#include "absl/strings/escaping.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"

namespace onepiece::database {

absl::StatusOr<ResultBundle> MakeResultBundle(const message::Message& message) {
  ResultBundle bundle;
  bundle.uid = message.header.uid;
  bundle.app_id = message.header.app;
  bundle.run = message.header.run;
  bundle.ingress_time = message.header.ingress_time;
  bundle.deadline = message.header.deadline;
  bool has_tensors = false;
  for (const message::Artifact& artifact : message.artifacts) {
    has_tensors = has_tensors || artifact.dtype != message::DType::kBytes;
  }
  for (const message::Artifact& artifact : message.artifacts) {
    if (artifact.dtype != message::DType::kBytes) continue;
    StoredArtifact stored;
    stored.info.set_artifact(artifact.name);
    stored.info.set_media_type(artifact.media_type);
    stored.info.set_size_bytes(static_cast<std::int64_t>(artifact.data.size()));
    stored.info.set_sha256(artifact.sha256.empty()
                               ? base::Sha256Hex(artifact.data.bytes())
                               : absl::BytesToHexString(base::AbslView(artifact.sha256)));
    stored.crc32c =
        artifact.crc32c.has_value() ? *artifact.crc32c : base::Crc32c(artifact.data.bytes());
    // Beside tensors the bytes are copied: sharing would keep the tensors' memory alive, which no
    // budget counts.
    stored.data = has_tensors ? message::Buffer::FromString(std::string(artifact.data.text()))
                              : artifact.data;
    bundle.total_bytes += stored.info.size_bytes();
    bundle.artifacts.push_back(std::move(stored));
  }
  if (bundle.artifacts.empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "EMPTY_RESULT",
                           "the last stage made no artifact of bytes");
  }
  return bundle;
}

}  // namespace onepiece::database
