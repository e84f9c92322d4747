// `onepiece bench elastic`: measures what disaggregation and moving instances save, in the
// simulator and in embedded clusters, and how a large fleet follows its load.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "onepiece/v1/simulation.pb.h"
#include "tests/bench/bench_report.h"

namespace onepiece::bench {

/// The rows elastic.sim.{steady,diurnal,bursty}.{monolithic,static} for a profile: GPU seconds
/// reserved per job at equal SLO and hardware. Calls `say` with the step under way.
///
/// Errors: those of the simulator.
absl::StatusOr<BenchReport> RunSimulatedElasticBench(
    const v1::SimulationProfile& profile, const std::function<void(const std::string&)>& say);

/// The rows elastic.cluster.{steady,diurnal,bursty}.{monolithic,static}: instance seconds reserved
/// per job, in embedded clusters of tiny-wan that this starts and ends, with the same number of
/// instance processes and the same arrivals for `seconds`.
///
/// Errors: those of local::Up, CANCELLED.
absl::StatusOr<BenchReport> RunClusterElasticBench(
    double seconds, std::stop_token stop, const std::function<void(const std::string&)>& say);

/// The row elastic.fleet.swap: how long the policy takes to move a fleet of 200 light instances
/// after a load that changes places, with a real NodeManager.
///
/// Errors: CANCELLED, DEADLINE_EXCEEDED (it says how far the pools are).
absl::StatusOr<BenchReport> RunFleetElasticBench(
    const std::stop_token& stop, const std::function<void(const std::string&)>& say);

}  // namespace onepiece::bench
