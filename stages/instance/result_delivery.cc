#include "stages/instance/result_delivery.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "cluster/base/sha256.h"
#include "cluster/base/status.h"

namespace onepiece::instance {
namespace {

/// This is shorter than the life of a reservation.
constexpr base::Duration kPutTimeout = std::chrono::seconds(5);

}  // namespace

void AddSha256(std::vector<message::Artifact>& artifacts) {
  for (message::Artifact& artifact : artifacts) {
    if (artifact.dtype == message::DType::kBytes && artifact.sha256.empty()) {
      artifact.sha256 = base::Sha256Digest(artifact.data.bytes());
    }
  }
}

std::optional<node::Delivered> PutResult(const message::Message& message,
                                         const node::Routing& routing, values::ValuePeers& peers,
                                         telemetry::Spans& spans, base::Clock& clock,
                                         base::MonotonicTime deadline) {
  if (!values::IsForPut(message)) return std::nullopt;
  const std::vector<v1::Endpoint> databases = routing.DatabasesFor(message.header.uid);
  if (databases.empty()) return std::nullopt;
  const v1::Endpoint& database = databases.front();
  telemetry::ScopedSpan span(spans, message.header.uid, "send");
  span.Set("to", database.node_id());
  const absl::StatusOr<bool> stored =
      peers.At(database.address())
          ->Put(message, std::min(deadline, clock.Now() + base::Scaled(kPutTimeout)));
  span.Set("outcome", stored.ok() ? "written" : base::GetReason(stored.status()).reason);
  if (!stored.ok()) {
    spdlog::info("uid={} the result goes to {} by message: {}", message.header.uid.ToString(),
                 database.node_id(), base::Message(stored.status()));
    return std::nullopt;
  }
  return node::Delivered{
      .endpoint = database, .attempt = message.header.attempt, .routing_epoch = routing.epoch()};
}

}  // namespace onepiece::instance
