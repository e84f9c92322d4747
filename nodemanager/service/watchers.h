// Who watches what, and what each of them gets next. Private to this folder; the thread of Watches
// alone uses these classes.
//
// A round has two halves. Look() runs while the state is locked and only copies what is new. Send()
// makes messages of that, once the state is known to be the newest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/routing_history.h"
#include "nodemanager/service/watch_stream.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Watchers of routing tables. All watchers of a set share its RoutingHistory.
class RoutingWatchers {
 public:
  void Add(const v1::WatchRoutingRequest& request, std::shared_ptr<WatchStream> stream);
  /// Returns true when somebody may get something.
  bool Look(const StateMachine& state);
  /// Returns how many messages were sent.
  std::size_t Send();
  void EndAll(const absl::Status& status);
  /// Watchers that have not taken the newest table.
  [[nodiscard]] std::size_t slow() const;
  /// How many whole tables went to watchers that had one and take deltas, because they had missed
  /// too much.
  [[nodiscard]] std::uint64_t snapshots() const { return snapshots_; }

 private:
  struct Watcher {
    std::shared_ptr<WatchStream> stream;
    bool takes_deltas = false;
    std::uint64_t known = 0;
    bool greeted = false;  // It has got its first message.
  };
  struct Set {
    RoutingHistory history;
    std::optional<v1::RoutingTable> fresh;  // Found by Look().
    std::vector<Watcher> watchers;
  };
  static bool IsBehind(const Watcher& watcher, const RoutingHistory& history) {
    return !watcher.greeted || watcher.known != history.epoch();
  }

  std::map<std::string, Set> sets_;
  std::uint64_t snapshots_ = 0;
};

/// Watchers of the assignment of one node each.
class AssignmentWatchers {
 public:
  void Add(v1::WatchAssignmentRequest request, std::shared_ptr<WatchStream> stream);
  bool Look(const StateMachine& state);
  void Send();
  void EndAll(const absl::Status& status);

 private:
  struct Watcher {
    std::shared_ptr<WatchStream> stream;
    v1::WatchAssignmentRequest request;
    std::optional<std::uint64_t> sent;                   // The epoch of the assignment sent last.
    std::optional<absl::StatusOr<v1::Assignment>> news;  // Found by Look().
  };
  std::vector<Watcher> watchers_;
};

/// Watchers of the whole cluster: the changes of nodes and workflows, and telemetry.
class ClusterWatchers {
 public:
  /// An event comes at least once in `heartbeat`. See WatchesOptions for `available_level`.
  ClusterWatchers(const Controller& controller, base::Duration heartbeat,
                  std::function<std::uint32_t()> available_level)
      : controller_(controller),
        heartbeat_(heartbeat),
        available_level_(std::move(available_level)) {}

  /// `interval` is that of the telemetry. 0: never.
  void Add(std::uint64_t start_revision, base::Duration interval, base::MonotonicTime now,
           std::shared_ptr<WatchStream> stream);
  bool Look(const StateMachine& state, base::MonotonicTime now);
  void Send(base::MonotonicTime now);
  void EndAll(const absl::Status& status);
  /// Watchers that have not taken all that was made for them.
  [[nodiscard]] std::size_t slow() const;
  /// When somebody must get something even if nothing changes.
  [[nodiscard]] base::MonotonicTime NextDue() const;

 private:
  struct Watcher {
    std::shared_ptr<WatchStream> stream;
    std::uint64_t known = 0;  // The revision of the last event that was made.
    base::Duration interval{};
    base::MonotonicTime next_telemetry{}, last_event{};
    std::vector<v1::ClusterEvent> news;  // Found by Look().
    std::deque<grpc::ByteBuffer>
        messages;  // Made by Send(). While there are any, nothing is found.
  };
  [[nodiscard]] std::vector<v1::ClusterEvent> Find(const StateMachine& state, Watcher& watcher,
                                                   base::MonotonicTime now) const;
  void AddTelemetry(const StateMachine& state, v1::Telemetry& telemetry) const;
  // A little before the promised time, so that a late thread does not break the promise.
  [[nodiscard]] base::MonotonicTime NextBeat(const Watcher& watcher) const {
    return watcher.last_event + heartbeat_ * 4 / 5;
  }

  const Controller& controller_;
  const base::Duration heartbeat_;
  const std::function<std::uint32_t()> available_level_;
  std::vector<Watcher> watchers_;
};

}  // namespace onepiece::nodemanager
