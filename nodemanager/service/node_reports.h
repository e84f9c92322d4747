// What nodes have reported: who is silent, and the telemetry that decisions and people see. Only
// the leader has it, in memory. After a failover a new leader has it again within a reporting
// interval.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/load/load_window.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// The last report of each live node, and a LoadWindow of all reports. Its size is bounded by the
/// number of live nodes and by LoadWindow.
///
/// Threading: thread-safe. Its lock is always taken last, so it may be used inside Log::Read().
class NodeReports {
 public:
  struct DeadNode {
    std::string node_id;
    std::uint64_t incarnation = 0;
    base::Duration silent{};
  };

  /// A node that has not reported for `dead_after` is dead. Loads are means over `window`.
  NodeReports(base::Clock& clock, base::Duration dead_after, base::Duration window)
      : clock_(clock), dead_after_(dead_after), window_length_(window), window_(window) {}

  /// Forgets everything, for a new leadership.
  void Clear();
  /// Takes a heartbeat of a live node that serves `pool`, or no pool when it is empty. Impossible
  /// numbers are left out. They are logged once for each incarnation, and AddTo() shows them.
  void Take(const v1::ReportNodeRequest& request, const std::string& pool);
  /// Returns which of the `live` nodes (incarnations by node id) are silent, and forgets all other
  /// nodes. If the last call is longer ago than half of `dead_after`, this process stood still, and
  /// every node gets a fresh period of grace instead.
  std::vector<DeadNode> FindDead(const std::map<std::string, std::uint64_t>& live);
  /// Adds to the node of `record` what its last report said, and its activity.
  void AddTo(v1::Node& node, const v1::NodeRecord& record) const;
  /// Calls `read` with the telemetry, which is valid during the call.
  void Read(const std::function<void(const Telemetry&)>& read) const;

 private:
  struct LastReport {
    std::uint64_t incarnation = 0;
    base::MonotonicTime at{};
    std::optional<base::WallTime> wall;  // nullopt before the first report.
    std::uint64_t routing_epoch = 0;
    std::string complaint;  // What was wrong with the last report's numbers.
    bool logged = false;    // A complaint of this incarnation has been logged.
  };

  base::Clock& clock_;
  const base::Duration dead_after_, window_length_;
  mutable base::Mutex mutex_;
  std::map<std::string, LastReport> reports_ ABSL_GUARDED_BY(mutex_);  // Live nodes only.
  LoadWindow window_ ABSL_GUARDED_BY(mutex_);
  base::MonotonicTime leading_since_ ABSL_GUARDED_BY(mutex_){};  // The last Clear().
  std::optional<base::MonotonicTime> last_check_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::nodemanager
