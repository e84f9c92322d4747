// Simulates one history of a cluster under a workload, by discrete events on a virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/system.h"
#include "nodemanager/simulator/workload.h"

namespace onepiece::simulator {

struct Percentiles {
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, max = 0;
};

struct PoolResult {
  std::string id;
  int devices = 0;            ///< The devices of one instance.
  double mean_instances = 0;  ///< How many instances loaded, served or drained, on average.
  double utilization = 0;     ///< The busy share of their workers.
  double device_s = 0;        ///< Device seconds reserved.
  std::uint64_t jobs = 0;
};

/// What came out. offered = accepted + rejected, and accepted = done + failed + in_flight.
///
/// Units: all times are in seconds.
struct SimulationResult {
  std::uint64_t offered = 0, accepted = 0, rejected = 0;
  std::uint64_t done = 0, failed = 0, in_flight = 0;
  std::uint64_t refusals = 0;  ///< Refusing answers. A client that retries may get several.
  std::uint64_t in_time = 0;   ///< Jobs done within their application's SLO.
  double duration_s = 0;
  double throughput = 0;         ///< Jobs/s that ended within the duration.
  Percentiles latency;           ///< How long the jobs done took, from their first request on.
  Percentiles queued;            ///< How long the jobs done waited in all queues together.
  double attainment = 0;         ///< in_time / offered. A rejected job counts as late.
  double reserved_device_s = 0;  ///< Time of devices in a pool, busy or not.
  double reserved_per_job = 0;   ///< reserved_device_s / done.
  double busy_device_s = 0;
  std::uint64_t moves = 0;         ///< Moves of the policy's plans.
  std::uint64_t reverts = 0;       ///< Those of them that came back.
  std::uint64_t deaths = 0;        ///< Of instances and idle devices.
  std::uint64_t given_again = 0;   ///< Jobs at dead instances that others computed again.
  std::uint64_t failed_loads = 0;  ///< Loads of a model that failed.
  std::uint64_t parked_loads = 0;  ///< Loads that found the weights still in memory.
  double resident_bytes_mean = 0, resident_bytes_peak = 0;  ///< Weights on devices.
  std::vector<PoolResult> pools;
  std::string policy_detail;  ///< The detail of the policy's last decision that had one.
  std::uint64_t events = 0;
};

struct SimulationOptions {
  /// As in ElasticityConfig: "utilization" or "static".
  std::string policy = "static";
  /// How many instances each pool has at the beginning.
  std::vector<int> placement;
  /// Called from time to time with the share that is done. If it returns false, the simulation ends
  /// (CANCELLED).
  std::function<bool(double)> progress;
};

/// Simulates the arrivals. The same arguments give the same result. After the last arrival the
/// simulation goes on until all jobs have ended, but at most for ten times the longest SLO. Jobs
/// that have not ended then are in flight.
/// REQUIRES: `settings` is complete, and the placement fits.
///
/// Threading: thread-safe. Several simulations may run at a time.
/// Errors: INVALID_ARGUMENT (BAD_ELASTICITY; BAD_SETTING: more sets than a pool has instances;
/// BAD_PROFILE: two stages of an application in one pool), NOT_FOUND (POLICY_UNKNOWN), CANCELLED
/// (INTERRUPTED).
absl::StatusOr<SimulationResult> Simulate(const System& system,
                                          const v1::SimulationConfig& settings,
                                          const std::vector<Arrival>& arrivals,
                                          const SimulationOptions& options);

}  // namespace onepiece::simulator
