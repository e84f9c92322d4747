// What nodes reported over the last minutes: the telemetry that elasticity and admission rest on.
// In the leader's memory only; rebuilt after a failover.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Means over a sliding window, from cumulative counts: lost and repeated reports change nothing.
///
/// Threading  Thread-compatible. No clock of its own: `now` comes from the caller, and the nodes'
///            clocks only show in Skew().
/// Bounds     kMaxSamples per node (older ones are thinned out), nodes that are not reported for a
///            window are forgotten.
class LoadWindow {
 public:
  static constexpr std::size_t kMaxSamples = 128;
  explicit LoadWindow(base::Duration window) : window_(window) {}

  /// Takes a report. Numbers that cannot be (NaN, negative, counts that fall, utilisation
  /// above 1.05, more busy time than workers × time) are left out, and what was wrong is returned
  /// for people; empty: all was well. A new incarnation, or another `pool`, begins anew.
  std::string Add(const std::string& node_id, std::uint64_t incarnation, const std::string& pool,
                  const v1::NodeLoad& load, base::MonotonicTime now, base::WallTime wall_now);
  void Forget(const std::string& node_id);

  /// Mean utilisation while it served its present pool; nullopt before half a window is covered, or
  /// when the newest report is older than a tenth of it ("missing" is not 0 %).
  [[nodiscard]] std::optional<double> MeanUtilization(const std::string& node_id,
                                                      base::MonotonicTime now) const;
  struct Work {
    std::uint64_t jobs = 0, failures = 0;
    double units = 0, compute_s = 0, squares_s2 = 0, queued_s = 0, transfer_s = 0;
  };
  /// By (app, stage): what instances of `pool` have finished within the window, all together. A
  /// pool without work in the window shows its last non-empty one.
  [[nodiscard]] std::map<std::pair<std::string, std::string>, Work> WorkOf(
      const std::string& pool, base::MonotonicTime now) const;
  /// Time to load a model of that stage, the last one told; nullopt: nobody has.
  [[nodiscard]] std::optional<double> LoadSeconds(const std::string& stage) const;
  struct Asked {
    double jobs_per_s = 0, rejected_per_s = 0;
  };
  /// By app: what the given proxies were asked for, per second of the window.
  [[nodiscard]] std::map<std::string, Asked> AskedOf(const std::vector<std::string>& proxies,
                                                     base::MonotonicTime now) const;
  /// The newest report; nullptr: none.
  [[nodiscard]] const v1::NodeLoad* Last(const std::string& node_id) const;
  /// The node's clock minus ours, at its newest report.
  [[nodiscard]] base::Duration Skew(const std::string& node_id) const;
  [[nodiscard]] base::Duration window() const { return window_; }

 private:
  base::Duration window_;
  // The owner of this module gives the members.
};

}  // namespace onepiece::nodemanager
