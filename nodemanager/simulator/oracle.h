// What no policy can beat: an offline optimum that knows the whole trace.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/system.h"
#include "nodemanager/simulator/workload.h"

namespace onepiece::simulator {

struct OracleResult {
  double done = 0;  ///< Jobs that end within the duration, at most.
  double throughput = 0;
  double interval_s = 0;  ///< It chooses a placement for each.
  std::size_t states = 0;
};

/// The most jobs that any sequence of placements ends within the duration: for each interval, as
/// long as the fastest load, a placement of its own, changed at no cost and without draining; jobs
/// flow on as a fluid. Devices that load are lost for an interval at least, so each works for one
/// pool in an interval, and what Simulate() does with any policy is never better. Exact dynamic
/// programming over all placements, states that others dominate left out. For one application, a
/// chain of stages with a pool each, and jobs of one cost. Errors: FAILED_PRECONDITION
/// (NOT_FOR_ORACLE) says which of these fails, or that the trace is too large.
absl::StatusOr<OracleResult> RunOracle(const System& system, const v1::SimulationConfig& settings,
                                       const std::vector<Arrival>& arrivals);

}  // namespace onepiece::simulator
