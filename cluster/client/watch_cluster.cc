// WatchCluster makes one stream of events out of any number of connections and leaders.
#include <grpcpp/grpcpp.h>

#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/client/client_impl.h"
#include "cluster/rpc/channel.h"

namespace onepiece::client {
namespace {

// A stream is opened anew after this long, so that a peer that stands still is noticed.
constexpr std::chrono::seconds kWatchTurn(15);

/// What the observer has been told so far.
struct Told {
  std::uint64_t revision = 0;
  std::string cluster_id;
  bool enough = false;
};

absl::Status HistoryLost(std::uint64_t now, std::uint64_t seen) {
  return base::MakeError(absl::StatusCode::kUnavailable, "HISTORY_LOST",
                         "the NodeManager is at revision " + std::to_string(now) + ", before " +
                             std::to_string(seen) +
                             ", which was seen: its data was lost or is old");
}

/// Passes an event on, unless it repeats what was told. Telemetry and heartbeats never repeat
/// anything.
///
/// Errors: UNAVAILABLE (HISTORY_LOST).
absl::Status Tell(const v1::ClusterEvent& event, const ClusterObserver& observer, Told& told) {
  const bool change =
      event.change_case() != v1::ClusterEvent::CHANGE_NOT_SET && !event.has_telemetry();
  const bool other_cluster = event.has_snapshot() && !told.cluster_id.empty() &&
                             event.snapshot().cluster_id() != told.cluster_id;
  if (!other_cluster && event.revision() < told.revision) {
    // A change of an older revision repeats what was told. A snapshot or a heartbeat of an older
    // revision means that the NodeManager has lost what was seen.
    if (event.has_snapshot() || !change) return HistoryLost(event.revision(), told.revision);
    return absl::OkStatus();
  }
  if (change && !event.has_snapshot() && event.revision() == told.revision) return absl::OkStatus();
  if (event.has_snapshot()) told.cluster_id = event.snapshot().cluster_id();
  told.revision = event.revision();
  told.enough = !observer(event);
  return absl::OkStatus();
}

}  // namespace

absl::Status Client::WatchCluster(std::uint64_t start_revision, const ClusterObserver& observer,
                                  base::MonotonicTime deadline, std::stop_token stop,
                                  base::Duration telemetry_interval) {
  base::Clock& clock = *impl_->options.clock;
  Told told;
  told.revision = start_revision;
  base::MonotonicTime give_up = clock.Now() + impl_->options.timeout;
  if (impl_->options.nodemanagers.empty())
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_NODEMANAGER",
                           "no NodeManager address is given");
  rpc::LeaderSearch search(impl_->proxies.managers());
  for (;;) {
    const rpc::Replica replica = search.Next();
    v1::NodeManagerService::Stub stub(replica.channel);
    v1::WatchClusterRequest request;
    request.set_start_revision(told.revision);
    request.set_telemetry_interval_ms(
        static_cast<std::int32_t>(telemetry_interval / std::chrono::milliseconds(1)));
    grpc::ClientContext context;
    rpc::SetTimeLeft(context, std::min(base::Scaled(kWatchTurn), deadline - clock.Now()));
    const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
    const std::stop_callback leave(impl_->options.stop, [&context] { context.TryCancel(); });
    const auto reader = stub.WatchCluster(&context, request);
    v1::ClusterEvent event;
    absl::Status status;
    bool answered = false;
    while (status.ok() && !told.enough && clock.Now() < deadline && reader->Read(&event)) {
      status = Tell(event, observer, told);
      if (!status.ok()) break;
      search.Answered();
      if (event.has_snapshot()) impl_->proxies.Learn(event.snapshot());
      answered = true;
      give_up = clock.Now() + impl_->options.timeout;
    }
    context.TryCancel();
    const grpc::Status end = reader->Finish();
    if (told.enough) return absl::OkStatus();
    if (stop.stop_requested() || impl_->options.stop.stop_requested())
      return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED", "interrupted");
    if (clock.Now() >= deadline)
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "WATCH_DEADLINE",
                             "the watch has reached its deadline");
    // The turn is over, and the next one begins at the same leader.
    if (answered && end.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) continue;
    if (status.ok()) status = ReadAnswer(end).status;
    if (!status.ok() && !rpc::IsAboutTheReplica(status) && !absl::IsResourceExhausted(status))
      return status;
    if (clock.Now() >= give_up) {
      return status.ok() ? absl::UnavailableError("the NodeManager ends every stream") : status;
    }
    impl_->proxies.Pause(search.Failed(status), std::min(deadline, give_up), stop);
  }
}

}  // namespace onepiece::client
