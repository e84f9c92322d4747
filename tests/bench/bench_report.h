// The report that every `onepiece bench` verb prints (docs/benchmarks.md, "The report").
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace onepiece::bench {

/// The peer's number, measured in alternation with ours.
struct Comparison {
  std::string peer;
  double theirs = 0;
  double ratio = 0;  ///< Above 1: we are better. The median over the pairs; the extremes follow.
  double ratio_min = 0;
  double ratio_max = 0;
};

/// One measured number.
struct BenchResult {
  std::string name;      ///< "hop.4KiB.p50"; unique in its report.
  std::string workload;  ///< The work, described for people.
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

/// Returns the median; of an even number of values, the larger one of the two in the middle.
/// REQUIRES: there is a value.
double MedianOf(std::vector<double> values);

/// Returns {"machine":{…},"results":[…]}. The machine is this one.
nlohmann::ordered_json ToJson(const BenchReport& report);
/// Returns a table for people with a line for each result.
std::string ToText(const BenchReport& report);
/// Writes one of the two formats to stdout.
void Print(const BenchReport& report, bool json);

}  // namespace onepiece::bench
