// A job's result in the form in which the database keeps it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/message/message.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::database {

struct StoredArtifact {
  v1::ResultArtifact info;
  message::Buffer data;      ///< info.size_bytes() bytes whose SHA-256 is info.sha256().
  std::uint32_t crc32c = 0;  ///< CRC-32C of the bytes; used while they are in value memory.
};

struct ResultBundle {
  base::Uid uid;
  std::string app_id;
  std::uint64_t run = 0;  ///< The run of the job that made it.
  base::WallTime ingress_time{};
  base::MonotonicTime deadline{};         ///< On this process's clock.
  std::vector<StoredArtifact> artifacts;  ///< At least one.
  std::int64_t total_bytes = 0;
};

/// Takes the byte artifacts of a kResult or kReplica message, in their order. It keeps the
/// checksums that the sender computed and computes those that are missing. It shares the message's
/// bytes when the message holds nothing but byte artifacts.
///
/// Errors: INVALID_ARGUMENT (EMPTY_RESULT).
absl::StatusOr<ResultBundle> MakeResultBundle(const message::Message& message);

}  // namespace onepiece::database
