// `onepiece-bench ring` measures our ring over shared memory beside its peers, on the same machine
// in the same run.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/bench_report.h"

namespace onepiece::bench {

struct RingBenchOptions {
  std::vector<std::string> peers = {"zeromq", "ucx", "grpc", "boost", "memcpy", "pingpong"};
  /// Message sizes, spelled like those of rows: "64B".
  std::vector<std::string> sizes = {"64B", "4KiB", "64KiB", "1MiB", "4MiB", "64MiB"};
  std::vector<int> producers = {1, 2, 4};
  /// Shorter measurements and fewer pairs, for tests and a first look. Do not publish such numbers.
  bool quick = false;
};

/// Returns the names that RingBenchOptions::peers may hold.
const std::vector<std::string>& RingPeers();
/// Returns the bytes of "64B", "4KiB", "4MiB".
///
/// Errors: INVALID_ARGUMENT.
absl::StatusOr<std::size_t> ParseSize(const std::string& text);

/// Measures, and prints on stderr which row is under way.
///
/// Errors: INVALID_ARGUMENT, those of Measure.
absl::StatusOr<BenchReport> RunRingBench(const RingBenchOptions& options);

}  // namespace onepiece::bench
