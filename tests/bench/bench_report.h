// What every `onepiece bench` verb prints (docs/benchmarks.md, "The report").
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace onepiece::bench {

/// The same number of somebody else, measured in alternation with ours.
struct Comparison {
  std::string peer;
  double theirs = 0;
  double ratio = 0;  ///< Above 1: we are better. Median over the pairs; the extremes beside it.
  double ratio_min = 0;
  double ratio_max = 0;
};

/// One measured number.
struct BenchResult {
  std::string name;      ///< "hop.4KiB.p50"; unique in its report.
  std::string workload;  ///< What was done, for people.
  std::string metric;
  std::string unit;
  std::string better = "lower";
  double ours = 0;
  int runs = 0;
  std::optional<Comparison> comparison;
  /// The same number for the parts of the whole, in order.
  std::vector<std::pair<std::string, double>> split;
};

struct BenchReport {
  std::vector<BenchResult> results;
};

/// Of an even number, the larger one of the two in the middle. REQUIRES: there are any.
double MedianOf(std::vector<double> values);

/// {"machine":{…},"results":[…]}; the machine is this one.
nlohmann::ordered_json ToJson(const BenchReport& report);
/// A table for people: a line for each result.
std::string ToText(const BenchReport& report);
/// Writes one of the two to stdout.
void Print(const BenchReport& report, bool json);

}  // namespace onepiece::bench
