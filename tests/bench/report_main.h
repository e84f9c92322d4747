// What a benchmark that takes no options but --json is as a program.
#pragma once

#include <cstdio>
#include <string>

#include "absl/functional/function_ref.h"
#include "tests/bench/bench_report.h"

namespace onepiece::bench {

/// Measures and prints the report; the program's exit code. `name`: of the program.
inline int ReportMain(int argc, char** argv, const char* name,
                      absl::FunctionRef<cli::BenchReport()> measure) {
  const bool json = argc == 2 && std::string(argv[1]) == "--json";
  if (argc > 1 && !json) {
    std::fprintf(stderr, "usage: %s [--json]\n", name);
    return 2;
  }
  const cli::BenchReport report = measure();
  const std::string text = json ? cli::ToJson(report).dump(2) + "\n" : cli::ToText(report);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace onepiece::bench
