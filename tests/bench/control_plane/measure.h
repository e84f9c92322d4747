// What is measured on both sides, ours and etcd's, in the same way.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/service/watches.h"
#include "tests/bench/consensus/group.h"
#include "tests/bench/control_plane/crowd.h"

namespace onepiece::bench {

/// How long all nodes may take for what they usually do at once.
inline constexpr base::Duration kCrowdLimit = std::chrono::seconds(60);

/// How long the streams rest before a change. A leader of ours sends tables to many nodes only so
/// often, and a change that comes sooner would wait for that.
constexpr base::Duration BetweenChanges(std::size_t nodes) {
  return std::chrono::milliseconds(50) + nodes * nodemanager::Watches::kPausePerTable;
}

struct ControlPlan {
  std::size_t nodes = 256;
  int changes = 30;
  base::Duration window = std::chrono::seconds(20);
  std::string dir;
  std::stop_token stop;
};

/// A group of three with its light nodes.
///
/// Threading: thread-confined.
class Side {
 public:
  virtual ~Side() = default;
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  /// Changes the watched value, so that it has `version`. Returns when that is committed, also when
  /// a leader must be found first.
  virtual absl::Status Change(std::int64_t version) = 0;
  /// Waits until the leader has heard every node after `since`. Returns when it had heard the last.
  virtual absl::StatusOr<base::MonotonicTime> WaitForHeartbeats(base::MonotonicTime since) = 0;

  [[nodiscard]] Group& group() { return *group_; }
  [[nodiscard]] Crowd& crowd() { return *crowd_; }

 protected:
  Side() = default;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Crowd> crowd_;  ///< Ends before the group.
};

/// One side's numbers.
struct ControlNumbers {
  std::vector<double> watch_s;  ///< One for each change.
  double leader_cores = 0, storm_s = 0;
  // Ours only:
  double memory_per_node = 0, drain_s = 0;
  /// Registrations a second from one host: answered, and taken. And a change meanwhile.
  double flood_rate = 0, flood_taken = 0, flood_watch_s = 0;
  std::uint64_t elections = 0, deaths = 0;
};

/// Measures our side or etcd's from its start to its end. `table_bytes`: the length of our routing
/// table, which MeasureOurs tells and etcd's value has.
///
/// Errors: CANCELLED, and DEADLINE_EXCEEDED, which says what did not happen in time.
absl::StatusOr<ControlNumbers> MeasureOurs(const ControlPlan& plan, std::size_t& table_bytes);
absl::StatusOr<ControlNumbers> MeasureEtcd(const ControlPlan& plan, std::size_t table_bytes);

/// Fills in the processor time of the leader while nothing changes.
absl::Status MeasureRest(Side& side, const ControlPlan& plan, ControlNumbers& numbers);
/// Fills in the time from each of plan.changes requests to the last node that has its table.
/// `version`: the last one that was made; it grows.
absl::Status MeasureWatch(Side& side, const ControlPlan& plan, std::int64_t& version,
                          ControlNumbers& numbers);
/// Kills the leader, and fills in the time until every node is back at a leader: it has got a table
/// that was committed since, and its heartbeat has been answered. Starts the killed member again.
absl::Status MeasureStorm(Side& side, std::int64_t& version, ControlNumbers& numbers);

/// Writes a line for people to stderr: "control: 64 nodes, ours: TEXT".
void Progress(const ControlPlan& plan, const char* side, const std::string& text);

}  // namespace onepiece::bench
