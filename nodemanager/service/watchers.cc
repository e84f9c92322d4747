#include "nodemanager/service/watchers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nodemanager/service/cluster_view.h"

namespace onepiece::nodemanager {
namespace {

template <typename Watchers>
void DropEnded(Watchers& watchers) {
  std::erase_if(watchers, [](const auto& watcher) { return watcher.stream->ended(); });
}

absl::StatusOr<const v1::Assignment*> FindAssignment(const StateMachine& state,
                                                     const v1::WatchAssignmentRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckKnown(state, request.node_id(), request.incarnation()));
  const auto known = state.nodes().find(request.node_id());
  if (known->second.node().incarnation() != request.incarnation() ||
      !IsAlive(known->second.node())) {
    return base::MakeError(
        absl::StatusCode::kAborted, "STALE_INCARNATION",
        absl::StrCat("this incarnation of node '", request.node_id(), "' is dead"));
  }
  return &known->second.node().assignment();
}

}  // namespace

void RoutingWatchers::Add(const v1::WatchRoutingRequest& request,
                          std::shared_ptr<WatchStream> stream) {
  const std::string& set = request.workflow_set();
  sets_[set.empty() ? "default" : set].watchers.push_back(
      {.stream = std::move(stream),
       .takes_deltas = request.takes_deltas(),
       .known = request.takes_deltas() ? request.start_epoch() : 0});
}

bool RoutingWatchers::Look(const StateMachine& state) {
  bool news = false;
  for (auto it = sets_.begin(); it != sets_.end();) {
    auto& [name, set] = *it;
    DropEnded(set.watchers);
    if (set.watchers.empty()) {
      it = sets_.erase(it);
      continue;
    }
    if (set.history.epoch() != state.EpochOf(name)) set.fresh = state.Routing(name);
    news = news || set.fresh ||
           std::any_of(
               set.watchers.begin(), set.watchers.end(),
               [&history = set.history](const Watcher& each) { return IsBehind(each, history); });
    ++it;
  }
  return news;
}

std::size_t RoutingWatchers::Send() {
  std::size_t sent = 0;
  for (auto& [name, set] : sets_) {
    if (set.fresh) set.history.Update(*std::exchange(set.fresh, std::nullopt));
    for (Watcher& watcher : set.watchers) {
      while (IsBehind(watcher, set.history) && watcher.stream->CanSend()) {
        RoutingHistory::Message next =
            watcher.takes_deltas ? set.history.Next(watcher.known) : set.history.Whole();
        watcher.stream->Send(std::move(next.bytes));
        if (watcher.takes_deltas && watcher.known != 0 && next.whole) ++snapshots_;
        watcher.known = next.epoch;
        watcher.greeted = true;
        ++sent;
      }
    }
  }
  return sent;
}

std::size_t RoutingWatchers::slow() const {
  std::size_t count = 0;
  for (const auto& [name, set] : sets_) {
    count += static_cast<std::size_t>(std::count_if(
        set.watchers.begin(), set.watchers.end(),
        [&history = set.history](const Watcher& each) { return IsBehind(each, history); }));
  }
  return count;
}

void RoutingWatchers::EndAll(const absl::Status& status) {
  for (auto& [name, set] : sets_) {
    for (const Watcher& watcher : set.watchers) watcher.stream->End(status);
  }
  sets_.clear();
}

void AssignmentWatchers::Add(v1::WatchAssignmentRequest request,
                             std::shared_ptr<WatchStream> stream) {
  watchers_.push_back({.stream = std::move(stream), .request = std::move(request)});
}

bool AssignmentWatchers::Look(const StateMachine& state) {
  DropEnded(watchers_);
  bool news = false;
  for (Watcher& watcher : watchers_) {
    const auto found = FindAssignment(state, watcher.request);
    if (found.ok() && watcher.sent == (*found)->epoch()) continue;
    if (!watcher.stream->CanSend()) continue;
    if (found.ok()) {
      watcher.news = **found;
    } else {
      watcher.news = found.status();
    }
    news = true;
  }
  return news;
}

void AssignmentWatchers::Send() {
  for (Watcher& watcher : watchers_) {
    if (!watcher.news) continue;
    const absl::StatusOr<v1::Assignment> news = *std::exchange(watcher.news, std::nullopt);
    if (news.ok()) {
      watcher.sent = news->epoch();
      watcher.stream->Send(ToBytes(*news));
    } else {
      watcher.stream->End(news.status());
    }
  }
}

void AssignmentWatchers::EndAll(const absl::Status& status) {
  for (const Watcher& watcher : watchers_) watcher.stream->End(status);
  watchers_.clear();
}

void ClusterWatchers::Add(std::uint64_t start_revision, base::Duration interval,
                          base::MonotonicTime now, std::shared_ptr<WatchStream> stream) {
  // A snapshot holds the telemetry already. A watcher that resumes has not heard it for a while, so
  // it hears it at once.
  watchers_.push_back({.stream = std::move(stream),
                       .known = start_revision,
                       .interval = interval,
                       .next_telemetry = start_revision == 0 ? now + interval : now,
                       .last_event = now});
}

std::vector<v1::ClusterEvent> ClusterWatchers::Find(const StateMachine& state, Watcher& watcher,
                                                    base::MonotonicTime now) const {
  std::vector<v1::ClusterEvent> events;
  // A client may know more than this replica when another replica leads by now. The round ends
  // before it tells old news then.
  if (watcher.known == 0 || watcher.known != state.revision())
    events = ChangesAfter(state, watcher.known);
  for (v1::ClusterEvent& event : events) {
    if (event.has_node()) controller_.AddTelemetry(state, *event.mutable_node());
    if (!event.has_snapshot()) continue;
    for (v1::Node& node : *event.mutable_snapshot()->mutable_nodes())
      controller_.AddTelemetry(state, node);
  }
  const std::uint64_t revision = events.empty() ? watcher.known : events.back().revision();
  if (watcher.interval > base::Duration::zero() && now >= watcher.next_telemetry) {
    events.emplace_back().set_revision(revision);
    AddTelemetry(state, *events.back().mutable_telemetry());
    // A slow reader does not get the telemetry that it missed in a burst.
    watcher.next_telemetry =
        std::max(watcher.next_telemetry, now - watcher.interval / 2) + watcher.interval;
  }
  if (events.empty() && now >= NextBeat(watcher)) events.emplace_back().set_revision(revision);
  return events;
}

bool ClusterWatchers::Look(const StateMachine& state, base::MonotonicTime now) {
  DropEnded(watchers_);
  bool news = false;
  for (Watcher& watcher : watchers_) {
    if (watcher.messages.empty() && watcher.stream->CanSend())
      watcher.news = Find(state, watcher, now);
    news = news || !watcher.news.empty() || !watcher.messages.empty();
  }
  return news;
}

void ClusterWatchers::Send(base::MonotonicTime now) {
  for (Watcher& watcher : watchers_) {
    for (v1::ClusterEvent& event : std::exchange(watcher.news, {})) {
      event.set_server_unix_ms(base::ToUnixMs(controller_.clock().WallNow()));
      // The log is asked here, because it must not be asked while the state is locked.
      if (event.has_snapshot() && available_level_)
        event.mutable_snapshot()->set_available_feature_level(available_level_());
      watcher.known = event.revision();
      watcher.last_event = now;
      watcher.messages.push_back(ToBytes(event));
    }
    while (!watcher.messages.empty() && watcher.stream->CanSend()) {
      watcher.stream->Send(std::move(watcher.messages.front()));
      watcher.messages.pop_front();
    }
  }
}

std::size_t ClusterWatchers::slow() const {
  return static_cast<std::size_t>(
      std::count_if(watchers_.begin(), watchers_.end(),
                    [](const Watcher& each) { return !each.messages.empty(); }));
}

void ClusterWatchers::EndAll(const absl::Status& status) {
  for (const Watcher& watcher : watchers_) watcher.stream->End(status);
  watchers_.clear();
}

// A watcher that takes nothing is woken by its stream, so it is never due.
base::MonotonicTime ClusterWatchers::NextDue() const {
  base::MonotonicTime due = base::MonotonicTime::max();
  for (const Watcher& watcher : watchers_) {
    if (!watcher.messages.empty()) continue;
    due = std::min(due, NextBeat(watcher));
    if (watcher.interval > base::Duration::zero()) due = std::min(due, watcher.next_telemetry);
  }
  return due;
}

void ClusterWatchers::AddTelemetry(const StateMachine& state, v1::Telemetry& telemetry) const {
  for (const auto& [id, record] : state.nodes()) {
    v1::Node node;
    node.set_node_id(id);
    node.set_incarnation(record.node().incarnation());
    node.set_role(record.node().role());
    node.set_state(record.node().state());
    node.set_detail(record.node().detail());
    controller_.AddTelemetry(state, node);
    v1::Telemetry::Entry& entry = *telemetry.add_nodes();
    entry.set_node_id(id);
    entry.set_activity(node.activity());
    entry.set_detail(std::move(*node.mutable_detail()));
    if (node.has_last_report_time())
      *entry.mutable_last_report_time() = std::move(*node.mutable_last_report_time());
    if (node.has_load()) *entry.mutable_load() = std::move(*node.mutable_load());
  }
}

}  // namespace onepiece::nodemanager
