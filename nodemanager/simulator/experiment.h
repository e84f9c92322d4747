// Compares policies on one trace, and finds how few devices a fixed placement needs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/simulation.h"

namespace onepiece::simulator {

/// The share of offered jobs that must end in time. It is like a 95th percentile, but rejected jobs
/// count as late.
inline constexpr double kAttainment = 0.95;

struct Outcome {
  std::string policy;
  std::vector<int> placement;  ///< Instances of each pool at the beginning.
  std::string placement_text;
  SimulationResult result;
};

/// Simulates the arrivals under `policy`: "static", "utilization", or "monolithic", which runs
/// whole jobs on each instance (MakeMonolithic).
/// Errors: those of MakeDisaggregated(), StartPlacement() and Simulate().
absl::StatusOr<Outcome> RunPolicy(const v1::SimulationProfile& profile,
                                  const v1::SimulationConfig& settings, const std::string& policy,
                                  const std::vector<Arrival>& arrivals,
                                  const std::function<bool(double)>& progress = {});

/// One of several histories of one kind of load for which a placement is sized.
struct Trial {
  v1::SimulationConfig settings;  ///< Complete settings. Trials differ in their seeds.
  std::vector<Arrival> arrivals;
};

/// Runs all trials with one placement, on all cores. The results are in the order of the trials. If
/// a trial misses `attainment`, the answer is empty and no further trial begins.
absl::StatusOr<std::vector<SimulationResult>> RunTrials(const System& system,
                                                        const std::vector<Trial>& trials,
                                                        const SimulationOptions& options,
                                                        double attainment = 0);

/// Finds the fixed placement with the fewest devices with which every trial meets kAttainment. It
/// tries placements in which each pool has the fewest instances that keep up, or one more; the pool
/// with the largest instances may have any number. (Many more in the other pools would not help,
/// because they are senders that meet at the same receivers.) The answer is empty when no such
/// placement fits on `devices`.
absl::StatusOr<std::vector<int>> SmallestPlacement(const System& system, int devices,
                                                   const std::vector<Trial>& trials);

}  // namespace onepiece::simulator
