// What nodes reported over the last minutes. Elasticity and admission rest on it. Only the leader
// has it, in memory, and a new leader builds it anew from the reports.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/capacity/cost_fit.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// Means over a sliding window. They are made from cumulative counts, so lost and repeated reports
/// change nothing.
///
/// The window is kept in 60 buckets, and reports that come faster are merged. It holds at most
/// kMaxPools pools, kMaxWorks stages of applications in each pool, and kMaxWorks applications of
/// each proxy. What has had no work for longest makes room. A node that has not reported for a
/// window is forgotten.
///
/// Threading: thread-compatible. It has no clock of its own: `now` comes from the caller.
class LoadWindow {
 public:
  static constexpr std::size_t kMaxWorks = 1024;
  static constexpr std::size_t kMaxPools = 4096;
  explicit LoadWindow(base::Duration window) : window_(window) {}

  /// Takes a report. Impossible numbers (NaN, negative ones, counts that fall, a utilisation above
  /// 1.05, more busy time than workers × time) are left out. The answer says for people what was
  /// wrong, and is empty when all was well. A new incarnation begins anew. With another `pool` the
  /// utilisation begins anew.
  std::string Add(const std::string& node_id, std::uint64_t incarnation, const std::string& pool,
                  const v1::NodeLoad& load, base::MonotonicTime now);
  void Forget(const std::string& node_id);

  /// A newest report of at most this age counts as fresh, also in a short window.
  static constexpr base::Duration kFresh = std::chrono::seconds(2);
  /// The mean utilisation of a node since it serves its present pool, over at most a window. It is
  /// nullopt before half a window is covered, because missing is not 0 %. It is nullopt too when
  /// the newest report is older than both a tenth of the window and kFresh.
  [[nodiscard]] std::optional<double> MeanUtilization(const std::string& node_id,
                                                      base::MonotonicTime now) const;
  struct Work {
    std::uint64_t jobs = 0, failures = 0;
    double units = 0, compute_s = 0, squares_s2 = 0, queued_s = 0, transfer_s = 0;
    double recent_compute_s = 0;  ///< The part of compute_s within the window.
    capacity::TermSums terms;     ///< Of stages with cost terms.
  };
  /// What all instances of `pool` together have finished, by application and stage. It reaches back
  /// over the window, and further until it covers kMinSamples jobs, if there ever were as many.
  /// What a node did before its first report counts as older than the window.
  [[nodiscard]] std::map<std::pair<std::string, std::string>, Work> WorkOf(
      const std::string& pool, base::MonotonicTime now) const;
  /// How long the last load of a model of that stage took, or nullopt when nobody has told.
  [[nodiscard]] std::optional<double> LoadSeconds(const std::string& stage) const;
  struct Asked {
    double jobs_per_s = 0;      ///< All jobs, admitted or not.
    double rejected_per_s = 0;  ///< The part of them that was rejected.
    double units_per_s = 0;     ///< The units of all jobs. 0 when the proxies do not say.
    /// The rate in jobs of `units_per_job` units (UnitsPerJob::value()). A job of ten times the
    /// units counts ten times.
    [[nodiscard]] double JobsOf(double units_per_job) const {
      return units_per_s > 0 && units_per_job > 0 ? units_per_s / units_per_job : jobs_per_s;
    }
    /// Worker seconds that a stage is asked for in each second, by the terms of its cost
    /// (capacity::CostByTerms). It is nullopt when the proxies do not say, or when the costs are of
    /// another formula. Jobs of proxies that do not say count as the mean of the others.
    [[nodiscard]] std::optional<double> SecondsOf(const std::string& stage,
                                                  std::span<const double> seconds_per_term) const;
    struct Terms {
      double jobs_per_s = 0;     ///< The jobs whose terms were told.
      std::vector<double> sums;  ///< Per second.
    };
    std::map<std::string, Terms> terms;  ///< By stage.
  };
  /// What the given proxies were asked for, by application, per second of the window. For a proxy
  /// that is known for less than a window, the rate is over that time, but over a second at least.
  [[nodiscard]] std::map<std::string, Asked> AskedOf(const std::vector<std::string>& proxies,
                                                     base::MonotonicTime now) const;
  /// What a proxy was asked for within about the last second, by application: over as few of its
  /// last reports as cover a second. It is empty for a proxy that is not fresh.
  [[nodiscard]] std::map<std::string, Asked> AskedLately(const std::string& proxy,
                                                         base::MonotonicTime now) const;
  /// The time since the newest report of a node. REQUIRES: Last().
  [[nodiscard]] base::Duration Age(const std::string& node_id, base::MonotonicTime now) const {
    return now - nodes_.at(node_id).newest;
  }
  /// The newest report, with the last good numbers in the place of bad ones, or null.
  [[nodiscard]] const v1::NodeLoad* Last(const std::string& node_id) const;
  [[nodiscard]] base::Duration window() const { return window_; }

 private:
  using Key = std::pair<std::string, std::string>;  // Application and stage.
  // The sums of what came in from `begin` until the next bucket begins.
  template <typename Sums>
  struct Bucket {
    base::MonotonicTime begin;
    Sums sums;
  };
  using WorkBuckets = std::deque<Bucket<Work>>;
  struct Count {
    double jobs = 0, rejected = 0, units = 0;
    std::map<std::string, Asked::Terms> terms;  // By stage. Jobs and sums, not yet per second.
    void Add(const v1::Demand& from, const v1::Demand& to);
  };
  static void AddCount(Asked& asked, const Count& count, double seconds);
  using Counts = std::map<std::string, Count>;  // By application.
  using AskedBuckets = std::deque<Bucket<Counts>>;
  // What one or a few reports have counted.
  struct Lately {
    double covered_s = 0;
    Counts counts;
  };
  // Running sums since the node serves its pool. Any entry may be left out, because each holds the
  // whole sum up to its time.
  struct Usage {
    base::MonotonicTime at;
    double covered_s = 0, busy_s = 0;
  };
  struct Node {
    std::uint64_t incarnation = 0;
    std::string pool;
    base::MonotonicTime first, newest;  // When its first and its newest report came.
    double first_compute_s = 0;         // The compute time of all entries in the first report.
    std::deque<Usage> usage;
    AskedBuckets asked;
    std::deque<Lately> lately;  // The newest is last.
    v1::NodeLoad last;
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
  // By pool. The newest bucket is last. No map and no deque in it is empty.
  std::map<std::string, std::map<Key, WorkBuckets>> work_;
  std::map<std::string, double> load_s_;  // By stage.
};

/// The units of an application's mean job, counted as Demand.units does: in its stage with the most
/// units. Units of stages differ by many orders of magnitude, so nobody knows which stage that is
/// before all stages have been measured.
///
/// Threading: thread-compatible.
class UnitsPerJob {
 public:
  /// Takes what was measured of one stage. Call it once for each stage.
  void AddStage(std::uint64_t jobs, double units) {
    known_ = known_ && jobs > 0 && units > 0;
    if (known_) most_ = std::max(most_, units / static_cast<double>(jobs));
  }
  /// The units of a job, or 0 before all stages have been measured.
  [[nodiscard]] double value() const { return known_ ? most_ : 0; }

 private:
  bool known_ = true;
  double most_ = 0;
};

}  // namespace onepiece::nodemanager
