// Policies side by side on one trace, and how few devices a fixed placement can do with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/simulation.h"

namespace onepiece::simulator {

/// The share of offered jobs that must end in time: a p95 that counts who was rejected.
inline constexpr double kAttainment = 0.95;

struct Outcome {
  std::string policy;
  std::vector<int> placement;  ///< At the beginning.
  std::string placement_text;
  Result result;
};

/// `policy`: "static", "utilization", or "monolithic", which is the fused pipeline on all devices.
/// Errors: as MakeDisaggregated, StartPlacement and Simulate.
absl::StatusOr<Outcome> RunPolicy(const v1::SimulationProfile& profile,
                                  const v1::SimulationConfig& settings, const std::string& policy,
                                  const std::vector<Arrival>& arrivals,
                                  const std::function<bool(double)>& progress = {});

/// Several histories of one kind of load, to be sized for.
struct Trial {
  v1::SimulationConfig settings;  ///< Complete; seeds differ.
  std::vector<Arrival> arrivals;
};

/// Runs all trials with one placement, on all cores. Results in the order of the trials. With
/// `attainment`: empty as soon as one misses it.
absl::StatusOr<std::vector<Result>> RunTrials(const System& system,
                                              const std::vector<Trial>& trials,
                                              const Options& options, double attainment = 0);

/// The fixed placement with the fewest devices with which every trial meets kAttainment: of those
/// in which each pool, save the one with the largest instances, has the fewest instances that keep
/// up, or one more. (Many more would not help: they are senders that meet at the same receivers.)
/// Empty: none on so many devices.
absl::StatusOr<std::vector<int>> SmallestPlacement(const System& system, int devices,
                                                   const std::vector<Trial>& trials);

}  // namespace onepiece::simulator
