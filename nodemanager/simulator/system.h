// What is simulated: the applications of a profile, their stages, and the pools that serve them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onepiece/v1/simulation.pb.h"

namespace onepiece::simulator {

/// A stage of the profile inside a stage of the system. A stage of the system has one part, or
/// several that are fused.
struct Part {
  /// The stage's index in the profile's application. A job draws by it, so it draws the same
  /// whether stages are fused or not.
  int index = 0;
  double seconds = 0;  ///< How long one device takes for an average job.
  double variation = 0;
  bool parallel = false;
};

struct Stage {
  std::string name;
  int pool = 0;
  double units = 1;  ///< The units of an average job.
  double transfer_s = 0;
  std::vector<Part> parts;
  std::vector<int> after, next;  ///< Stages of the same application.
};

struct App {
  std::string id;
  double share = 1;  ///< The share of all arrivals. All shares add up to 1.
  std::vector<Stage> stages;
  double slo_s = 0;  ///< A job that takes longer than this is late.
};

struct Pool {
  std::string id;
  std::string stage;  ///< The first stage that it serves.
  int devices = 1;    ///< The devices of one instance.
  int workers = 1;
  int min_instances = 1, max_instances = 0;
  double load_s = 0;
  std::int64_t weights_bytes = 0;  ///< On each device.
};

/// A simulated cluster, as plain values that have been checked.
struct System {
  std::vector<Pool> pools;
  std::vector<App> apps;
  int devices = 0;
};

/// Fills the defaults into the settings.
/// Errors: INVALID_ARGUMENT (BAD_SETTING), which names the setting and what it may be.
absl::StatusOr<v1::SimulationConfig> CompleteSettings(v1::SimulationConfig settings);

/// Makes a system in which each stage runs on instances of its pool. An instance has `degree`
/// devices in a pool with a parallel stage, and one device in the other pools.
/// REQUIRES: `settings` is complete.
/// Errors: INVALID_ARGUMENT (BAD_PROFILE), which names the field.
absl::StatusOr<System> MakeDisaggregated(const v1::SimulationProfile& profile,
                                         const v1::SimulationConfig& settings);
/// Makes a system of one pool, in which every instance has all weights on `degree` devices and runs
/// whole jobs. Requirements and errors are those of MakeDisaggregated().
absl::StatusOr<System> MakeMonolithic(const v1::SimulationProfile& profile,
                                      const v1::SimulationConfig& settings);

/// How many seconds one worker of an instance takes for an average job.
double StageSeconds(const System& system, const Stage& stage);
/// How long an average job takes that waits nowhere: the longest way through its stages.
double UnloadedLatency(const System& system, const App& app);
/// The device seconds that an average job of the mix would take if no device ever waited for
/// another.
double IdealDeviceSeconds(const System& system);
/// The device seconds for which an average job of the mix keeps instances busy. No placement can do
/// with less.
double BoundDeviceSeconds(const System& system);

/// The highest rate of the mix, in jobs/s, that these instances of each pool can take.
double RateOf(const System& system, const std::vector<int>& instances);
/// How many instances of each pool take the highest rate on `devices`, with no more instances than
/// that rate needs.
/// Errors: FAILED_PRECONDITION (TOO_FEW_DEVICES) when the minima do not fit.
absl::StatusOr<std::vector<int>> BestPlacement(const System& system, int devices);
/// The placement that the text names, or the best one when the text is empty.
/// Errors: INVALID_ARGUMENT (BAD_SETTING), and those of BestPlacement().
absl::StatusOr<std::vector<int>> StartPlacement(const System& system, const std::string& placement);
/// The placement as text: "encode=2,dit=7".
std::string PlacementText(const System& system, const std::vector<int>& instances);
int DevicesOf(const System& system, const std::vector<int>& instances);

}  // namespace onepiece::simulator
