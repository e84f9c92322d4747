#include "stages/instance/result_delivery.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/values/no_room.h"

namespace onepiece::instance {
namespace {

/// This is shorter than the life of a reservation.
constexpr base::Duration kPutTimeout = std::chrono::seconds(5);
/// Between attempts to write a result that goes by no ring.
constexpr base::Duration kPause = std::chrono::milliseconds(250);

struct Written {
  /// Where it is, or none when no database took the result so. A result that a database has all the
  /// same does no harm.
  std::optional<node::Delivered> at;
  /// An error when no database can ever take it.
  absl::Status never;
  /// A database says that it has no room for it. That database would end the job if the result came
  /// through its ring, where another one may have room, or this one later.
  bool no_room = false;
};

Written Write(const message::Message& message, const node::Routing& routing, const ResultWays& ways,
              base::MonotonicTime deadline) {
  const auto databases = routing.DatabasesFor(message.header.uid);
  std::size_t too_small = 0;
  Written written;
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
    written.no_room = written.no_room || values::HasNoRoom(stored.status());
    if (base::GetReason(stored.status()).reason == values::kBudgetExceeded) {
      ++too_small;
      never = base::MakeError(absl::StatusCode::kFailedPrecondition, values::kBudgetExceeded,
                              base::Message(stored.status()));
    }
    spdlog::info("uid={} the result was not written to {}: {}", message.header.uid.ToString(),
                 database.node_id(), base::Message(stored.status()));
  }
  // A database that is away may have a larger budget.
  if (too_small == databases.size()) written.never = never;
  return written;
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
  bool by_message = true;
  if (values::IsForPut(message)) {
    auto written = Write(message, routing, ways, deadline);
    if (written.at.has_value()) return *std::move(written.at);
    ONEPIECE_RETURN_IF_ERROR(written.never);
    by_message = !written.no_room;
  }
  if (by_message) {
    absl::StatusOr<node::Delivered> sent =
        ways.send(node::Destination::DatabasesFor(message.header.uid));
    if (base::GetReason(sent.status()).reason != "MESSAGE_TOO_LARGE" || !values::CanPut(message)) {
      return sent;
    }
  }
  // A database must have room. The pauses keep the caller, who retries at once, from asking without
  // end.
  while (true) {
    auto written = Write(message, routing, ways, deadline);
    if (written.at.has_value()) return *std::move(written.at);
    ONEPIECE_RETURN_IF_ERROR(written.never);
    if (ways.clock.Now() + base::Scaled(kPause) >= until) break;
    ways.clock.Pause({}, base::Scaled(kPause));
  }
  return base::MakeError(absl::StatusCode::kUnavailable, "RESULT_NOT_TAKEN",
                         "no database has room for the result now");
}

}  // namespace onepiece::instance
