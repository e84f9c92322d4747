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
  /// The stage's index in the profile's application. It seeds the random numbers of the part, so a
  /// job takes the same random time here in a fused and in a split system.
  int index = 0;
  double seconds = 0;     ///< Of one device, for an average job.
  double variation = 0;   ///< Standard deviation / mean of a job's seconds. 0: constant.
  bool parallel = false;  ///< The devices of the instance share a job; else one of them works.
};

struct Stage {
  std::string name;
  int pool = 0;           ///< Index in System::pools.
  double units = 1;       ///< The units of an average job.
  double transfer_s = 0;  ///< Seconds from this stage to the next one, or to the database.
  std::vector<Part> parts;
  std::vector<int> after, next;  ///< Indices in App::stages: predecessors and successors.
};

struct App {
  std::string id;
  double share = 1;  ///< The share of all arrivals. All shares add up to 1.
  std::vector<Stage> stages;
  double slo_s = 0;  ///< A job that takes more seconds than this is late.
};

struct Pool {
  std::string id;
  std::string stage;                         ///< The first stage that it serves.
  int devices = 1;                           ///< The devices of one instance.
  int workers = 1;                           ///< Jobs that one instance computes at once.
  int min_instances = 1, max_instances = 0;  ///< A maximum of 0 is no limit.
  double load_s = 0;                         ///< Seconds from drained to serving.
  std::int64_t weights_bytes = 0;            ///< On each device.
};

/// A simulated cluster, as plain values that have been checked. A placement, below, has a number of
/// instances for each of `pools`.
struct System {
  std::vector<Pool> pools;
  std::vector<App> apps;
  int devices = 0;  ///< Of the whole cluster.
};

/// Fills the defaults into the settings. A field that is 0 or absent takes the default of
/// simulation.proto.
///
/// Errors: INVALID_ARGUMENT (BAD_SETTING), which names the setting and what it may be.
absl::StatusOr<v1::SimulationConfig> CompleteSettings(v1::SimulationConfig settings);

/// Makes a system in which each stage runs on instances of its pool. An instance has
/// `settings.degree()` devices in a pool with a parallel stage, and one device in the other pools.
///
/// REQUIRES: `settings` comes from CompleteSettings().
/// Errors: INVALID_ARGUMENT (BAD_PROFILE), which names the field.
absl::StatusOr<System> MakeDisaggregated(const v1::SimulationProfile& profile,
                                         const v1::SimulationConfig& settings);
/// Makes a system of one pool, in which every instance has all weights on `settings.degree()`
/// devices and runs whole jobs, one at a time. Requirements and errors are those of
/// MakeDisaggregated().
absl::StatusOr<System> MakeMonolithic(const v1::SimulationProfile& profile,
                                      const v1::SimulationConfig& settings);

/// Returns the seconds that one worker of the stage's pool takes for an average job of this stage.
double StageSeconds(const System& system, const Stage& stage);
/// Returns the seconds from start to end of an average job that never waits, transfers included.
double UnloadedLatency(const System& system, const App& app);
/// Returns the device seconds that an average job of the mix (all applications, by their shares)
/// would take if no device ever waited for another.
double IdealDeviceSeconds(const System& system);
/// Returns the device seconds for which an average job of the mix keeps instances busy. No
/// placement can do with less.
double BoundDeviceSeconds(const System& system);

/// Returns the highest rate of the mix, in jobs/s, that a placement can take; 0 when a needed pool
/// has no instance.
double RateOf(const System& system, const std::vector<int>& instances);
/// Returns the placement with the highest rate on at most `devices` devices. It has no more
/// instances than that rate, or the minima, need.
///
/// Errors: FAILED_PRECONDITION (TOO_FEW_DEVICES) when the minima do not fit.
absl::StatusOr<std::vector<int>> BestPlacement(const System& system, int devices);
/// Returns the placement that the text names, or the best one when the text is empty. The text must
/// name every pool and fit the devices; the minima and maxima of pools do not bind it.
///
/// Errors: INVALID_ARGUMENT (BAD_SETTING), and for an empty text those of BestPlacement().
absl::StatusOr<std::vector<int>> StartPlacement(const System& system, const std::string& placement);
/// Returns the placement as text: "encode=2,dit=7".
std::string PlacementText(const System& system, const std::vector<int>& instances);
/// Returns the devices that a placement takes.
int DevicesOf(const System& system, const std::vector<int>& instances);

}  // namespace onepiece::simulator
