// What nodes have reported: who is silent, and the telemetry that decisions and people see. In the
// leader's memory only; rebuilt within a reporting interval after a failover.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "nodemanager/load/load_window.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Threading  Thread-safe. Its lock is the last one taken: it may be used inside Log::Read().
/// Bounds     One entry for each live node, LoadWindow's.
class NodeReports {
 public:
  struct DeadNode {
    std::string node_id;
    std::uint64_t incarnation = 0;
    base::Duration silent{};
  };

  /// Without a report for `dead_after` a node is dead; load is a mean over `window`.
  NodeReports(base::Clock& clock, base::Duration dead_after, base::Duration window)
      : clock_(clock), dead_after_(dead_after), window_length_(window), window_(window) {}

  /// Forgets everything: a new leadership.
  void Clear();
  /// Takes a heartbeat of a live node, which serves `pool` (empty: none). Numbers that cannot be
  /// are left out, logged once for each incarnation, and told by AddTo().
  void Take(const v1::ReportNodeRequest& request, const std::string& pool);
  /// Of `live` (incarnations by node id) those that are silent; forgets all others. When the last
  /// call is longer ago than half of `dead_after` (this process stood still), everyone gets fresh
  /// grace instead.
  std::vector<DeadNode> FindDead(const std::map<std::string, std::uint64_t>& live);
  /// Adds to the node of `record` what its last report said, and what it is about.
  void AddTo(v1::Node& node, const v1::NodeRecord& record) const;
  /// Calls `read` with the telemetry, which is valid during the call.
  void Read(const std::function<void(const Telemetry&)>& read) const;

 private:
  struct LastReport {
    std::uint64_t incarnation = 0;
    base::MonotonicTime at{};
    std::optional<base::WallTime> wall;  // None before the first report.
    std::uint64_t routing_epoch = 0;
    std::string complaint;  // What was wrong with the last report's numbers.
    bool logged = false;    // Some complaint was.
  };

  base::Clock& clock_;
  const base::Duration dead_after_, window_length_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::string, LastReport> reports_;  // Live nodes only.
  LoadWindow window_;
  base::MonotonicTime leading_since_{};  // The last Clear().
  std::optional<base::MonotonicTime> last_check_;
};

}  // namespace onepiece::nodemanager
