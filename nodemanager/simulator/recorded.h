// A recording of a real cluster as a case for the simulator: `onepiece simulate --trace RECORDING`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/workload.h"
#include "onepiece/v1/simulation.pb.h"

namespace onepiece::simulator {

/// What a recording tells of a cluster and of its jobs.
struct RecordedCase {
  /// The workflows with their measured costs, the pools, and settings for what the recording knows.
  v1::SimulationProfile profile;
  /// The jobs that clients submitted while it was recorded, in order of time. `app` is the index in
  /// profile.apps.
  std::vector<Arrival> arrivals;
  /// For people: what the case holds of the recording, and what it does not.
  std::vector<std::string> taken, missing;
  /// What the jobs did in reality, to compare: those that succeeded, and how long they took.
  std::uint64_t done = 0;
  double mean_latency_s = 0;
};

/// Reads a recording of `onepiece record`. One instance is one device.
///
/// - Arrivals: each job's create_time, application and units. The units are those of the stage in
///   which the application spends most time, divided by their mean.
/// - Costs: what instances counted between the first and the last tick (NodeLoad.stages), or the
///   timings of the jobs when a recording is too short for that.
/// - Placement, limits and workers: those of the first tick that shows a workflow.
///
/// Blocking: reads the file; about a millisecond for each ten seconds that were recorded.
/// Errors: those of history::Recording, FAILED_PRECONDITION (NOTHING_RECORDED: no workflow, no job,
/// or no cost of any application).
absl::StatusOr<RecordedCase> ReadRecording(const std::string& path);

}  // namespace onepiece::simulator
