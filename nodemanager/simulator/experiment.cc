#include "nodemanager/simulator/experiment.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "cluster/base/status.h"

namespace onepiece::simulator {
namespace {

// With fewer instances than this the pool cannot keep up even on average.
int LeastOf(const System& system, std::size_t pool, const std::vector<Trial>& trials) {
  double least = system.pools[pool].min_instances;
  for (const Trial& trial : trials) {
    double work_s = 0;
    for (const Arrival& job : trial.arrivals) {
      for (const Stage& stage : system.apps[job.app].stages) {
        if (stage.pool == static_cast<int>(pool)) work_s += job.units * StageSeconds(system, stage);
      }
    }
    least = std::max(least, std::ceil(kAttainment * work_s / trial.settings.duration_s() /
                                      system.pools[pool].workers));
  }
  return static_cast<int>(least);
}

}  // namespace

absl::StatusOr<Outcome> RunPolicy(const v1::SimulationProfile& profile,
                                  const v1::SimulationConfig& settings, const std::string& policy,
                                  const std::vector<Arrival>& arrivals,
                                  const std::function<bool(double)>& progress) {
  const bool fused = policy == "monolithic";
  ONEPIECE_ASSIGN_OR_RETURN(const System system, fused ? MakeMonolithic(profile, settings)
                                                       : MakeDisaggregated(profile, settings));
  Outcome outcome{.policy = policy};
  ONEPIECE_ASSIGN_OR_RETURN(outcome.placement,
                            StartPlacement(system, fused ? "" : settings.placement()));
  outcome.placement_text = PlacementText(system, outcome.placement);
  ONEPIECE_ASSIGN_OR_RETURN(outcome.result, Simulate(system, settings, arrivals,
                                                     {.policy = fused ? "static" : policy,
                                                      .placement = outcome.placement,
                                                      .progress = progress}));
  return outcome;
}

absl::StatusOr<std::vector<SimulationResult>> RunTrials(const System& system,
                                                        const std::vector<Trial>& trials,
                                                        const SimulationOptions& options,
                                                        double attainment) {
  std::vector<std::optional<absl::StatusOr<SimulationResult>>> results(trials.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> missed = false;
  const auto work = [&] {
    for (std::size_t i = next++; i < trials.size() && !missed; i = next++) {
      results[i] = Simulate(system, trials[i].settings, trials[i].arrivals, options);
      if (!results[i]->ok() || (*results[i])->attainment < attainment) missed = true;
    }
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    for (std::size_t i = 1; i < std::min(cores, trials.size()); ++i) threads.emplace_back(work);
    work();
  }
  std::vector<SimulationResult> all;
  for (auto& result : results) {
    if (!result.has_value()) continue;
    if (!result->ok()) return result->status();
    if (!missed) all.push_back(**std::move(result));
  }
  return all;
}

absl::StatusOr<std::vector<int>> SmallestPlacement(const System& system, int devices,
                                                   const std::vector<Trial>& trials) {
  std::vector<int> least;
  for (std::size_t p = 0; p < system.pools.size(); ++p) least.push_back(LeastOf(system, p, trials));
  const auto largest = static_cast<std::size_t>(
      std::ranges::max_element(system.pools, {}, &Pool::devices) - system.pools.begin());
  std::vector<std::vector<int>> candidates;
  // Each bit of `more` gives one pool one more instance.
  for (std::uint32_t more = 0; more < (1U << std::min<std::size_t>(system.pools.size(), 8));
       ++more) {
    if ((more >> largest & 1U) != 0) continue;
    std::vector<int> placement = least;
    for (std::size_t p = 0; p < placement.size() && p < 8; ++p)
      placement[p] += static_cast<int>(more >> p & 1U);
    for (; DevicesOf(system, placement) <= devices; ++placement[largest])
      candidates.push_back(placement);
  }
  std::ranges::stable_sort(candidates, {}, [&](const std::vector<int>& placement) {
    return DevicesOf(system, placement);
  });
  for (const std::vector<int>& placement : candidates) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::vector<SimulationResult> results,
                              RunTrials(system, trials, {.placement = placement}, kAttainment));
    if (!results.empty()) return placement;
  }
  return std::vector<int>();
}

}  // namespace onepiece::simulator
