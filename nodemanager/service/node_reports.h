// The reports of nodes. They say which node is silent, and they are the telemetry for decisions and
// for people. Only the leader takes them, and keeps them in memory. A new leader begins with none.
// It has each node's last report after one reporting interval, and means after half a window.
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

/// The last report of each live node, and a LoadWindow of all reports. The memory is bounded by the
/// number of live nodes and by the bounds of LoadWindow.
///
/// Threading: thread-safe. It takes no other lock of the NodeManager while it holds its own, so it
/// may be used inside Log::Read().
class NodeReports {
 public:
  struct DeadNode {
    std::string node_id;
    std::uint64_t incarnation = 0;
    base::Duration silent{};  ///< Since its last report, or since its grace period began.
  };

  /// A node that has not reported for `dead_after` is dead. Loads are means over `window`.
  NodeReports(base::Clock& clock, base::Duration dead_after, base::Duration window)
      : clock_(clock), dead_after_(dead_after), window_length_(window), window_(window) {}

  /// Forgets everything. Call it when this replica begins to lead.
  void Clear();
  /// Goes by other times from now on. With another window, all means begin anew. Nodes hear of a
  /// shorter report interval with the answer to their next report. So with a shorter `dead_after`
  /// each has, until then, as long as it had before.
  void Follow(base::Duration dead_after, base::Duration window);
  /// Notes what is new in the state, for Telemetry::ages. Call it before Read() with the state
  /// that the reader looks at.
  void Note(const StateMachine& state) const;
  /// Takes a heartbeat of a live node. `pool` is the pool that the node is assigned to; it is empty
  /// for a node without a pool. Impossible numbers are left out (LoadWindow::Add). The first such
  /// report of an incarnation is logged. AddTo() shows what was wrong with the last report.
  void Take(const v1::ReportNodeRequest& request, const std::string& pool);
  /// The incarnation lives now, although it has reported nothing. Ignores one that FindDead() has
  /// not seen.
  void NoteLife(const std::string& node_id, std::uint64_t incarnation);
  /// Returns the nodes of `live` (incarnation by node id) that have been silent for `dead_after`.
  /// It forgets every node that is not in `live`. A node that has not reported yet counts from the
  /// first call that names it.
  ///
  /// If the previous call is more than dead_after / 2 ago, this process did not run and took no
  /// reports. All nodes then start a new grace period. The first call after Clear() does the same.
  std::vector<DeadNode> FindDead(const std::map<std::string, std::uint64_t>& live);
  /// Fills load, last_report_time and activity of `node`. `record` is the state's record of the
  /// same node. Load and time come from its last report and stay unset without one; only a live
  /// instance has an activity. A bad number, or a clock that is more than 1 s off, is added to the
  /// node's detail.
  void AddTo(v1::Node& node, const v1::NodeRecord& record) const;
  /// Returns the time since the last report of this incarnation, or nullopt before the first.
  [[nodiscard]] std::optional<base::Duration> SilenceOf(const v1::Node& node) const;
  /// Calls `read` with the telemetry, which is valid during the call. The lock is held meanwhile,
  /// so `read` must be short, must not use this object, and must not take a lock.
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
  mutable base::Mutex mutex_;
  base::Duration dead_after_ ABSL_GUARDED_BY(mutex_);
  base::Duration window_length_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, LastReport> reports_ ABSL_GUARDED_BY(mutex_);  // Live nodes only.
  LoadWindow window_ ABSL_GUARDED_BY(mutex_);
  // Any reader of the state may be the first to see something.
  mutable StampAges ages_ ABSL_GUARDED_BY(mutex_);
  std::optional<base::MonotonicTime> last_check_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::nodemanager
