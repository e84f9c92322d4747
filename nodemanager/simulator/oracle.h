// The oracle: an offline optimum that knows the whole trace, and that no policy can beat.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/system.h"
#include "nodemanager/simulator/workload.h"

namespace onepiece::simulator {

struct OracleResult {
  double done = 0;  ///< At most this many jobs end within the duration.
  double throughput = 0;
  double interval_s = 0;  ///< The oracle chooses a placement for each interval of this length.
  std::size_t states = 0;
};

/// Finds the most jobs that any sequence of placements can end within the duration.
///
/// It cuts the duration into intervals as long as the fastest load, and gives each interval a
/// placement of its own. A change of placement costs nothing, and jobs flow on as a fluid. In
/// Simulate() a device that loads is lost for an interval at least, so it works for one pool at
/// most in each interval. Therefore no policy does better there. The search is exact dynamic
/// programming over all placements, and leaves out states that others dominate.
///
/// It takes one application, a chain of stages with a pool each, and jobs of one cost.
/// Errors: FAILED_PRECONDITION (NOT_FOR_ORACLE), which says what does not hold, or that the trace
/// is too large.
absl::StatusOr<OracleResult> RunOracle(const System& system, const v1::SimulationConfig& settings,
                                       const std::vector<Arrival>& arrivals);

}  // namespace onepiece::simulator
