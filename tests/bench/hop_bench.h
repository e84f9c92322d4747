// `onepiece bench hop` measures how long a job takes from one instance to the next.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "tests/bench/bench_report.h"

namespace onepiece::bench {

/// The program argument that makes a process the receiver.
inline constexpr char kHopPeerVerb[] = "hop-peer";

struct HopBenchOptions {
  int runs = 200;  ///< Runs of each size; at least 1. A few more run first and do not count.
  /// The pause before each send, so that the receiver sleeps.
  base::Duration pause = std::chrono::milliseconds(3);
  /// Starts the receiving process: RunHopPeer() of a process of its own. Two arguments are
  /// appended: the fabric's URI, and the ring's capacity in bytes.
  std::vector<std::string> peer_command = {"/proc/self/exe", kHopPeerVerb};
};

/// Measures from the moment a stage's output is handed to the Outbox in this process until a task
/// worker of the other process has it: encoding, ring, wake-ups of the receiver and of its worker,
/// copy out with checksum, decoding. The halves share no code path but shared memory: each has its
/// own fabric, ring end, codec and, in the receiver, request scheduler. Reports
/// hop.{4KiB,200kB,4.2MB,28MB}.{p50,p99} in µs; `split` has the same percentile of each part. Start
/// it before other threads load the machine.
///
/// Blocking: seconds.
///
/// Errors: UNAVAILABLE if the receiver does not start, or ends; those of Outbox::Deliver.
absl::StatusOr<BenchReport> RunHopBench(const HopBenchOptions& options);

/// The receiving process (`onepiece-bench hop-peer URI BYTES`): serves until its standard
/// input is closed. Returns the exit code.
int RunHopPeer(const std::string& fabric_uri, std::uint64_t ring_bytes);

}  // namespace onepiece::bench
