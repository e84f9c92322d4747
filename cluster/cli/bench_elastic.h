// `onepiece bench elastic`: what disaggregation and moving instances save, in the simulator.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/cli/bench_report.h"
#include "onepiece/v1/simulation.pb.h"

namespace onepiece::cli {

/// The rows elastic.sim.{steady,diurnal,bursty}.{monolithic,static} for a profile: GPU seconds
/// reserved per job at equal SLO and hardware. `say` hears what is being done. Errors: as those of
/// the simulator.
absl::StatusOr<BenchReport> RunSimulatedElasticBench(
    const v1::SimulationProfile& profile, const std::function<void(const std::string&)>& say);

}  // namespace onepiece::cli
