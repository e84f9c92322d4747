// What the proxies of a workflow set are asked for and what they have promised. Private to this
// folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nodemanager/plans/plans.h"

namespace onepiece::nodemanager {

/// Ownership: borrows all three. The costs in `capacity` must not change while it lives.
/// Threading: thread-compatible.
class ProxyLoads {
 public:
  /// `capacity` has the set's pools and costs.
  ProxyLoads(const StateMachine& state, const Telemetry& telemetry, const v1::Capacity& capacity);

  /// The share of the set's capacity that `proxy` has. One that is about to begin shares with those
  /// that work.
  [[nodiscard]] double ShareOf(const std::string& proxy) const;
  /// The worker seconds of `pool` that proxies other than `proxy` have promised and that the pool
  /// has not done yet. A proxy that is silent counts with its last report, less what the pool has
  /// done since, until it is dead.
  [[nodiscard]] double OthersDebt(const std::string& proxy, const std::string& pool) const;

 private:
  // By pool, in worker seconds.
  using ByPool = std::map<std::string, double>;
  struct Asked {
    ByPool seconds;        // For each second of time.
    double all_s = 0;      // In all pools, with a second for each job of unknown cost.
    bool is_known = true;  // All its jobs have known costs.
  };
  [[nodiscard]] Asked AskedOf(const std::string& proxy) const;
  void ReadDebts();

  const StateMachine& state_;
  const Telemetry& telemetry_;
  const std::string workflow_set_;
  struct MeanJob {
    std::vector<const v1::StageCost*> stages;  // Those of known cost.
    UnitsPerJob units;
  };
  std::map<std::string, MeanJob> mean_jobs_;  // By application. Borrows the capacity's costs.
  ByPool workers_;
  std::map<std::string, ByPool> debts_;  // By proxy.
};

}  // namespace onepiece::nodemanager
