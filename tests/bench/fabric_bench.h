// `onepiece-bench fabric` measures single operations of a fabric beside the machine's own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/bench_report.h"

namespace onepiece::bench {

struct FabricBenchOptions {
  /// A backend, written like --fabric of every service. Empty: shared memory.
  std::string fabric;
  std::string protect;  ///< How ucx protects frames: none, mac or aead. Empty: its default.
  std::vector<std::string> sizes = {"64B", "4KiB", "64KiB", "1MiB", "4MiB", "64MiB"};
  bool peers = true;  ///< Compare with the processor doing the same.
  bool quick = false;
};

/// Measures chains of one awaited operation, from this process to a region of its own.
///
/// Blocking: seconds.
///
/// Errors: those of the fabric, INVALID_ARGUMENT.
absl::StatusOr<BenchReport> RunFabricBench(const FabricBenchOptions& options);

}  // namespace onepiece::bench
