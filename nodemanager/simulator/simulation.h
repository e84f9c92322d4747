// One history of a cluster under a workload: discrete events on a virtual clock.
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
  int devices = 0;            ///< Of one instance.
  double mean_instances = 0;  ///< That loaded, served or drained.
  double utilization = 0;     ///< Busy share of their workers.
  double device_s = 0;        ///< Reserved.
  std::uint64_t jobs = 0;
};

/// All times in seconds. offered = accepted + rejected, accepted = done + failed + in_flight.
struct Result {
  std::uint64_t offered = 0, accepted = 0, rejected = 0;
  std::uint64_t done = 0, failed = 0, in_flight = 0;
  std::uint64_t refusals = 0;  ///< Answers: a client that asks again may get several.
  std::uint64_t in_time = 0;   ///< Done within their application's SLO.
  double duration_s = 0;
  double throughput = 0;         ///< Jobs/s that ended within the duration.
  Percentiles latency;           ///< Of done jobs, from the first time that they were asked for.
  Percentiles queued;            ///< Of done jobs: waiting inside, in all queues together.
  double attainment = 0;         ///< in_time / offered: who is rejected is not served in time.
  double reserved_device_s = 0;  ///< Of devices in a pool, busy or not; the others are idle.
  double reserved_per_job = 0;   ///< Over `done`.
  double busy_device_s = 0;
  std::uint64_t moves = 0;
  double resident_bytes_mean = 0, resident_bytes_peak = 0;  ///< Weights on devices.
  std::vector<PoolResult> pools;
  std::string policy_detail;  ///< Its last words.
  std::uint64_t events = 0;
};

struct Options {
  /// As in ElasticityConfig: "utilization" or "static".
  std::string policy = "static";
  /// Instances of each pool at the beginning.
  std::vector<int> placement;
  /// Called now and then with the share that is done; false ends the simulation (CANCELLED).
  std::function<bool(double)> progress;
};

/// The same arguments give the same result. After the arrivals' end it goes on until all jobs have
/// ended, at most for ten times the longest SLO: what is left is in flight. REQUIRES: `settings` is
/// complete, the placement fits. Errors: INVALID_ARGUMENT (BAD_ELASTICITY), NOT_FOUND
/// (POLICY_UNKNOWN), CANCELLED (INTERRUPTED).
absl::StatusOr<Result> Simulate(const System& system, const v1::SimulationConfig& settings,
                                const std::vector<Arrival>& arrivals, const Options& options);

}  // namespace onepiece::simulator
