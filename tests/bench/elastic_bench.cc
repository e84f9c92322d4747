#include "tests/bench/elastic_bench.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "nodemanager/simulator/experiment.h"

namespace onepiece::bench {
namespace {

using simulator::SimulationOptions;
using simulator::SimulationResult;
using simulator::System;
using simulator::Trial;

constexpr int kSeeds = 5;

struct Load {
  const char* name;
  const char* kind;
  double load;        ///< Device seconds offered per device second.
  double duration_s;  ///< A day if the load changes over a day.
};
// The load that the fused workflow just takes with all devices.
constexpr Load kLoads[] = {
    {"steady", "poisson", 0.6, 6 * 3600},
    {"diurnal", "diurnal", 0.4, 24 * 3600},
    {"bursty", "bursty", 0.25, 24 * 3600},
};

/// One way to serve the load in time.
struct Way {
  System system;
  SimulationOptions options;
  std::vector<Trial> trials;
  std::vector<SimulationResult>
      results;      ///< One for each trial. Empty if the devices do not suffice.
  int devices = 0;  ///< The devices that it needs.
  std::string setting;
};

double MeanOf(const std::vector<SimulationResult>& results, double SimulationResult::*number) {
  double sum = 0;
  for (const SimulationResult& result : results) sum += result.*number;
  return sum / static_cast<double>(results.size());
}

absl::StatusOr<std::vector<Trial>> MakeTrials(const Load& load, const System& system,
                                              v1::SimulationConfig settings) {
  std::vector<Trial> trials;
  settings.set_load(load.load);
  settings.set_duration_s(load.duration_s);
  for (int seed = 1; seed <= kSeeds; ++seed) {
    settings.set_seed(static_cast<std::uint64_t>(seed));
    ONEPIECE_ASSIGN_OR_RETURN(const v1::SimulationConfig complete,
                              simulator::CompleteSettings(settings));
    ONEPIECE_ASSIGN_OR_RETURN(auto arrivals, simulator::MakeWorkload(load.kind, system, complete));
    trials.push_back({.settings = complete, .arrivals = std::move(arrivals)});
  }
  return trials;
}

// Finds the fewest devices that suffice without moves.
absl::StatusOr<Way> Fixed(const System& system, const std::vector<Trial>& trials) {
  Way way{.system = system, .trials = trials};
  ONEPIECE_ASSIGN_OR_RETURN(way.options.placement,
                            simulator::SmallestPlacement(system, system.devices, trials));
  if (way.options.placement.empty()) return way;
  ONEPIECE_ASSIGN_OR_RETURN(way.results, simulator::RunTrials(system, trials, way.options));
  way.devices = simulator::DevicesOf(system, way.options.placement);
  way.setting = simulator::PlacementText(system, way.options.placement);
  return way;
}

// Finds the policy's settings that reserve least and are in time, beginning with the fixed
// placement. Returns `fixed` itself if none are.
absl::StatusOr<Way> Elastic(const Way& fixed) {
  Way best = fixed;
  for (const double floor : {0.0, 0.5, 0.75}) {
    for (const double threshold : {0.85, 0.7, 0.55}) {
      Way way = fixed;
      way.options.policy = "utilization";
      for (std::size_t p = 0; p < way.system.pools.size(); ++p) {
        int& least = way.system.pools[p].min_instances;
        least = std::max(least, static_cast<int>(std::lround(floor * way.options.placement[p])));
      }
      for (Trial& trial : way.trials) {
        trial.settings.mutable_elasticity()->set_threshold(threshold);
        trial.settings.mutable_elasticity()->set_low_threshold(threshold - 0.1);
      }
      ONEPIECE_ASSIGN_OR_RETURN(
          way.results,
          simulator::RunTrials(way.system, way.trials, way.options, simulator::kAttainment));
      if (way.results.empty() || MeanOf(way.results, &SimulationResult::reserved_per_job) >=
                                     MeanOf(best.results, &SimulationResult::reserved_per_job))
        continue;
      way.setting =
          absl::StrFormat("threshold %.2f, low_threshold %.2f, at least %.0f %% of the fixed",
                          threshold, threshold - 0.1, 100 * floor);
      best = std::move(way);
    }
  }
  // Checks whether the policy needs more devices than the fixed placement.
  Way tight = best;
  tight.system.devices = fixed.devices;
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::vector<SimulationResult> results,
      simulator::RunTrials(tight.system, tight.trials, tight.options, simulator::kAttainment));
  best.devices = results.empty() ? fixed.system.devices : fixed.devices;
  return best;
}

BenchResult Row(const Load& load, const std::string& peer, const Way& ours, const Way& theirs,
                double bound, const std::string& more) {
  BenchResult row{.name = absl::StrCat("elastic.sim.", load.name, ".", peer),
                  .metric = "GPU seconds reserved per job",
                  .unit = "s",
                  .better = "lower",
                  .runs = kSeeds};
  const v1::SimulationConfig& settings = ours.trials.front().settings;
  row.workload = absl::StrFormat(
      "%s, %.0f %% of %d GPUs for %.0f h, P = %d, ideal sequence parallelism; %.0f %% of all jobs "
      "within %.1f s; ideal bound against monolithic %.3f; ours: %s; theirs: %s%s",
      load.kind, 100 * load.load, settings.devices(), load.duration_s / 3600, settings.degree(),
      100 * simulator::kAttainment, ours.system.apps[0].slo_s, bound, ours.setting,
      theirs.results.empty() ? "does not serve this in time" : theirs.setting, more);
  row.ours = MeanOf(ours.results, &SimulationResult::reserved_per_job);
  row.split = {{"gpus", ours.devices},
               {"in_time", MeanOf(ours.results, &SimulationResult::attainment)},
               {"moves", static_cast<double>(ours.results.front().moves)},
               {"weights_gb", MeanOf(ours.results, &SimulationResult::resident_bytes_mean) / 1e9}};
  if (theirs.results.empty()) return row;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < theirs.results.size(); ++i)
    ratios.push_back(theirs.results[i].reserved_per_job / ours.results[i].reserved_per_job);
  row.comparison = {.peer = peer,
                    .theirs = MeanOf(theirs.results, &SimulationResult::reserved_per_job),
                    .ratio = MedianOf(ratios),
                    .ratio_min = std::ranges::min(ratios),
                    .ratio_max = std::ranges::max(ratios)};
  row.split.emplace_back("their_gpus", theirs.devices);
  row.split.emplace_back("their_in_time", MeanOf(theirs.results, &SimulationResult::attainment));
  row.split.emplace_back("their_weights_gb",
                         MeanOf(theirs.results, &SimulationResult::resident_bytes_mean) / 1e9);
  return row;
}

}  // namespace

absl::StatusOr<BenchReport> RunSimulatedElasticBench(
    const v1::SimulationProfile& profile, const std::function<void(const std::string&)>& say) {
  ONEPIECE_ASSIGN_OR_RETURN(const v1::SimulationConfig settings,
                            simulator::CompleteSettings(profile.settings()));
  ONEPIECE_ASSIGN_OR_RETURN(const System apart, simulator::MakeDisaggregated(profile, settings));
  ONEPIECE_ASSIGN_OR_RETURN(const System fused, simulator::MakeMonolithic(profile, settings));
  const double bound = simulator::BoundDeviceSeconds(fused) / simulator::BoundDeviceSeconds(apart);
  BenchReport report;
  for (const Load& load : kLoads) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::vector<Trial> trials, MakeTrials(load, apart, settings));
    say(absl::StrCat(load.name, ": the fewest GPUs for the fused workflow"));
    ONEPIECE_ASSIGN_OR_RETURN(const Way monolithic, Fixed(fused, trials));
    say(absl::StrCat(load.name, ": the fewest GPUs for stages that stay where they are"));
    ONEPIECE_ASSIGN_OR_RETURN(const Way fixed, Fixed(apart, trials));
    if (fixed.results.empty()) {
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "TOO_FEW_DEVICES",
                             absl::StrCat(load.name, ": no placement on ", settings.devices(),
                                          " GPUs serves this in time"));
    }
    say(absl::StrCat(load.name, ": the policy's settings"));
    ONEPIECE_ASSIGN_OR_RETURN(const Way ours, Elastic(fixed));
    std::string more;
    if (!monolithic.results.empty()) {
      ONEPIECE_ASSIGN_OR_RETURN(const Way moved, Elastic(monolithic));
      more = absl::StrFormat("; monolithic with the same policy: %.1f s",
                             MeanOf(moved.results, &SimulationResult::reserved_per_job));
    }
    report.results.push_back(Row(load, "monolithic", ours, monolithic, bound, more));
    report.results.push_back(Row(load, "static", ours, fixed, bound, ""));
  }
  return report;
}

}  // namespace onepiece::bench
