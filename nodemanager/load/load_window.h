// What nodes reported over the last minutes: the telemetry that elasticity and admission rest on.
// In the leader's memory only; rebuilt after a failover.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
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
/// Bounds     A sixtieth of a window is one sample (reports that come faster are merged); kMaxWorks
///            stages of applications in each pool and applications of each proxy, kMaxPools pools
///            (what has no work for longest makes room). Nodes that have not reported for a window
///            are forgotten.
class LoadWindow {
 public:
  static constexpr std::size_t kMaxWorks = 256;
  static constexpr std::size_t kMaxPools = 4096;
  explicit LoadWindow(base::Duration window) : window_(window) {}

  /// Takes a report. Numbers that cannot be (NaN, negative, counts that fall, utilisation
  /// above 1.05, more busy time than workers × time) are left out, and what was wrong is returned
  /// for people; empty: all was well. A new incarnation, or another `pool`, begins anew.
  std::string Add(const std::string& node_id, std::uint64_t incarnation, const std::string& pool,
                  const v1::NodeLoad& load, base::MonotonicTime now, base::WallTime wall_now);
  void Forget(const std::string& node_id);

  /// Mean utilisation while it served its present pool; nullopt before half a window is covered, or
  /// when the newest report is older than a tenth of it and than kFresh ("missing" is not 0 %).
  static constexpr base::Duration kFresh = std::chrono::seconds(2);
  [[nodiscard]] std::optional<double> MeanUtilization(const std::string& node_id,
                                                      base::MonotonicTime now) const;
  struct Work {
    std::uint64_t jobs = 0, failures = 0;
    double units = 0, compute_s = 0, squares_s2 = 0, queued_s = 0, transfer_s = 0;
    double recent_compute_s = 0;  ///< Of compute_s, within the window.
  };
  /// By (app, stage): what instances of `pool` have finished, all together: within the window, and
  /// so far back that there are kMinSamples jobs, if there ever were as many. Before the first
  /// report of a node counts as long ago.
  [[nodiscard]] std::map<std::pair<std::string, std::string>, Work> WorkOf(
      const std::string& pool, base::MonotonicTime now) const;
  /// Time to load a model of that stage, the last one told; nullopt: nobody has.
  [[nodiscard]] std::optional<double> LoadSeconds(const std::string& stage) const;
  struct Asked {
    double jobs_per_s = 0;      ///< Admitted or not.
    double rejected_per_s = 0;  ///< Of these.
    double units_per_s = 0;     ///< Of all; 0: the proxies do not say.
    /// In jobs of UnitsPerJob::value(): ten times heavier jobs count ten times.
    [[nodiscard]] double JobsOf(double units_per_job) const {
      return units_per_s > 0 && units_per_job > 0 ? units_per_s / units_per_job : jobs_per_s;
    }
  };
  /// By app: what the given proxies were asked for, per second of the window or, when it has not
  /// known a proxy for so long, of that time (at least a second).
  [[nodiscard]] std::map<std::string, Asked> AskedOf(const std::vector<std::string>& proxies,
                                                     base::MonotonicTime now) const;
  /// The newest report, the last good numbers in the place of bad ones; nullptr: none.
  [[nodiscard]] const v1::NodeLoad* Last(const std::string& node_id) const;
  /// The node's clock minus ours, at its newest report.
  [[nodiscard]] base::Duration Skew(const std::string& node_id) const;
  [[nodiscard]] base::Duration window() const { return window_; }

 private:
  using Key = std::pair<std::string, std::string>;  // Application and stage.
  // What came in from `begin` until the next one's.
  template <typename Sums>
  struct Bucket {
    base::MonotonicTime begin;
    Sums sums;
  };
  using WorkBuckets = std::deque<Bucket<Work>>;
  struct Count {
    double jobs = 0, rejected = 0, units = 0;
  };
  using AskedBuckets = std::deque<Bucket<std::map<std::string, Count>>>;
  // Running sums since the node serves its pool: any of them may be left out.
  struct Usage {
    base::MonotonicTime at;
    double covered_s = 0, busy_s = 0;
  };
  struct Node {
    std::uint64_t incarnation = 0;
    std::string pool;
    base::MonotonicTime first, newest;  // Of this incarnation's reports.
    double first_compute_s = 0;         // In the first one, of all entries.
    std::deque<Usage> usage;
    AskedBuckets asked;
    v1::NodeLoad last;
    base::Duration skew{};
  };

  [[nodiscard]] base::Duration BucketWidth() const { return window_ / 60; }
  [[nodiscard]] base::Duration FreshFor() const { return std::max(window_ / 10, kFresh); }
  void AddUsage(Node& node, std::optional<double> utilization, base::MonotonicTime now) const;
  void AddWork(const std::string& pool, const v1::NodeLoad& from, const v1::NodeLoad& to,
               base::MonotonicTime now);
  void AddAsked(Node& node, const v1::NodeLoad& to, base::MonotonicTime now) const;
  WorkBuckets& WorkBucketsOf(const std::string& pool, const Key& key);
  void AddPast(const std::string& pool, const v1::NodeLoad& load, base::MonotonicTime now);
  void ForgetOld(WorkBuckets& buckets, base::MonotonicTime now) const;
  void ForgetSilent(base::MonotonicTime now);

  base::Duration window_;
  base::MonotonicTime swept_{};        // When silent nodes were last looked for.
  std::map<std::string, Node> nodes_;  // By id.
  // By pool; newest bucket last, nothing is empty.
  std::map<std::string, std::map<Key, WorkBuckets>> work_;
  std::map<std::string, double> load_s_;  // By stage.
};

/// Units of an application's mean job, as Demand.units has them: of its stage with most. Which one
/// that is nobody knows before all have been measured: stages' units differ by many orders.
class UnitsPerJob {
 public:
  /// Once for each stage: what was measured of it.
  void AddStage(std::uint64_t jobs, double units) {
    known_ = known_ && jobs > 0 && units > 0;
    if (known_) most_ = std::max(most_, units / static_cast<double>(jobs));
  }
  /// 0: unknown.
  [[nodiscard]] double value() const { return known_ ? most_ : 0; }

 private:
  bool known_ = true;
  double most_ = 0;
};

}  // namespace onepiece::nodemanager
