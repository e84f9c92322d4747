#include "stages/instance/result_delivery.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cluster/base/sha256.h"
#include "cluster/base/status.h"

namespace onepiece::instance {
namespace {

/// This is shorter than the life of a reservation.
constexpr base::Duration kPutTimeout = std::chrono::seconds(5);
/// The reason of a database whose whole budget is smaller than the result.
constexpr char kTooLarge[] = "RESULT_BUDGET_EXCEEDED";
/// Between attempts to write a result that no ring holds.
constexpr base::Duration kPause = std::chrono::milliseconds(250);

struct Written {
  /// Where it is, or none when no database took the result so. A result that a database has all the
  /// same does no harm.
  std::optional<node::Delivered> at;
  /// An error when no database can ever take it.
  absl::Status never;
};

Written Write(const message::Message& message, const node::Routing& routing, const ResultWays& ways,
              base::MonotonicTime deadline) {
  const auto databases = routing.DatabasesFor(message.header.uid);
  std::size_t too_small = 0;
  absl::Status never;
  for (const v1::Endpoint& database : databases) {
    const base::MonotonicTime now = ways.clock.Now();
    if (now >= deadline) break;
    telemetry::ScopedSpan span(ways.spans, message.header.uid, "send");
    span.Set("to", database.node_id());
    const absl::StatusOr<bool> stored =
        ways.values.At(database.address())
            ->Put(message, std::min(deadline, now + base::Scaled(kPutTimeout)));
    span.Set("outcome", stored.ok() ? "written" : base::GetReason(stored.status()).reason);
    if (stored.ok()) {
      return {.at = node::Delivered{.endpoint = database,
                                    .attempt = message.header.attempt,
                                    .routing_epoch = routing.epoch()}};
    }
    if (base::GetReason(stored.status()).reason == kTooLarge) {
      ++too_small;
      never = base::MakeError(absl::StatusCode::kFailedPrecondition, kTooLarge,
                              base::Message(stored.status()));
    }
    spdlog::info("uid={} the result was not written to {}: {}", message.header.uid.ToString(),
                 database.node_id(), base::Message(stored.status()));
  }
  // A database that is away may have a larger budget.
  return {.never = too_small == databases.size() ? never : absl::OkStatus()};
}

}  // namespace

void AddSha256(std::vector<message::Artifact>& artifacts) {
  for (message::Artifact& artifact : artifacts) {
    if (artifact.dtype == message::DType::kBytes && artifact.sha256.empty()) {
      artifact.sha256 = base::Sha256Digest(artifact.data.bytes());
    }
  }
}

absl::StatusOr<node::Delivered> DeliverResult(const message::Message& message,
                                              const node::Routing& routing, const ResultWays& ways,
                                              base::Duration patience,
                                              base::MonotonicTime deadline) {
  const base::MonotonicTime until = std::min(deadline, ways.clock.Now() + patience);
  if (values::IsForPut(message)) {
    if (auto written = Write(message, routing, ways, deadline); written.at.has_value())
      return *std::move(written.at);
  }
  absl::StatusOr<node::Delivered> sent =
      ways.send(node::Destination::DatabasesFor(message.header.uid));
  if (base::GetReason(sent.status()).reason != "MESSAGE_TOO_LARGE" || !values::CanPut(message)) {
    return sent;
  }
  // No ring holds it, so a database must have room. The pauses keep the caller, who retries at
  // once, from asking without end.
  while (true) {
    auto written = Write(message, routing, ways, deadline);
    if (written.at.has_value()) return *std::move(written.at);
    ONEPIECE_RETURN_IF_ERROR(written.never);
    if (ways.clock.Now() + base::Scaled(kPause) >= until) break;
    ways.clock.Pause({}, base::Scaled(kPause));
  }
  return base::MakeError(absl::StatusCode::kUnavailable, "RESULT_NOT_TAKEN",
                         "no database takes the result now, and it is too large for their rings");
}

}  // namespace onepiece::instance
