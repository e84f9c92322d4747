// The main function of a benchmark that takes no options but --json.
#pragma once

#include <cstdio>
#include <string>

#include "absl/functional/function_ref.h"
#include "tests/bench/bench_report.h"

namespace onepiece::bench {

/// Measures and prints the report. Returns the exit code. `name` is the program's name.
inline int ReportMain(int argc, char** argv, const char* name,
                      absl::FunctionRef<BenchReport()> measure) {
  const bool json = argc == 2 && std::string(argv[1]) == "--json";
  if (argc > 1 && !json) {
    std::fprintf(stderr, "usage: %s [--json]\n", name);
    return 2;
  }
  Print(measure(), json);
  return 0;
}

}  // namespace onepiece::bench
