// What is simulated: applications, their stages and the pools that serve them, from a profile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onepiece/v1/simulation.pb.h"

namespace onepiece::simulator {

/// A stage of the profile inside a stage of the system: itself, or one that is fused with others.
struct Part {
  int index = 0;  ///< In the profile's application: what a job draws there is the same, fused or
                  ///< not.
  double seconds = 0;  ///< Of one device and an average job.
  double variation = 0;
  bool parallel = false;
};

struct Stage {
  std::string name;
  int pool = 0;
  double units = 1;  ///< Of an average job.
  double transfer_s = 0;
  std::vector<Part> parts;
  std::vector<int> after, next;  ///< Stages of the same application.
};

struct App {
  std::string id;
  double share = 1;  ///< Of all arrivals; the shares' sum is 1.
  std::vector<Stage> stages;
  double slo_s = 0;  ///< A job in time takes at most so long.
};

struct Pool {
  std::string id;
  std::string stage;  ///< The first that it serves.
  int devices = 1;    ///< Of one instance.
  int workers = 1;
  int min_instances = 1, max_instances = 0;
  double load_s = 0;
  std::int64_t weights_bytes = 0;  ///< On each device.
};

/// Plain values, checked.
struct System {
  std::vector<Pool> pools;
  std::vector<App> apps;
  int devices = 0;
};

/// The settings with their defaults filled in. Errors: INVALID_ARGUMENT (BAD_SETTING) names the
/// setting and what it may be.
absl::StatusOr<v1::SimulationConfig> CompleteSettings(v1::SimulationConfig settings);

/// Each stage on instances of its pool; a pool with a parallel stage has `degree` devices for an
/// instance, the others one. REQUIRES: `settings` is complete. Errors: INVALID_ARGUMENT
/// (BAD_PROFILE) names the field.
absl::StatusOr<System> MakeDisaggregated(const v1::SimulationProfile& profile,
                                         const v1::SimulationConfig& settings);
/// One pool: every instance has all weights on `degree` devices and runs whole jobs.
absl::StatusOr<System> MakeMonolithic(const v1::SimulationProfile& profile,
                                      const v1::SimulationConfig& settings);

/// Seconds of one worker of an instance for an average job.
double StageSeconds(const System& system, const Stage& stage);
/// Of an average job that waits nowhere: the longest way through its stages.
double UnloadedLatency(const System& system, const App& app);
/// Device seconds that an average job of the mix would take if no device ever waited for another.
double IdealDeviceSeconds(const System& system);
/// Device seconds that it keeps instances busy: what no placement can do better.
double BoundDeviceSeconds(const System& system);

/// Jobs/s of the mix that so many instances of each pool can take at most.
double RateOf(const System& system, const std::vector<int>& instances);
/// Instances of each pool with which `devices` take most, and no more of them than that needs.
/// Errors: FAILED_PRECONDITION (TOO_FEW_DEVICES) when the minima don't fit.
absl::StatusOr<std::vector<int>> BestPlacement(const System& system, int devices);
/// The settings' placement, or else the best one. Errors: INVALID_ARGUMENT (BAD_SETTING), and as
/// BestPlacement.
absl::StatusOr<std::vector<int>> StartPlacement(const System& system, const std::string& placement);
/// "encode=2,dit=7"
std::string PlacementText(const System& system, const std::vector<int>& instances);
int DevicesOf(const System& system, const std::vector<int>& instances);

}  // namespace onepiece::simulator
