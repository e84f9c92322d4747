// One number of both sides, measured in alternation.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/bench_report.h"

namespace onepiece::bench {

struct Pairs {
  std::vector<double> ours, theirs;  ///< Theirs is empty, or as long as ours.

  /// The row's own fields. `name` ends in the peer's name.
  struct What {
    std::string name, peer, workload, metric, unit;
    bool higher_is_better = false;
  };
  /// Returns the medians and the median of the pairs' ratios.
  ///
  /// REQUIRES: ours is not empty.
  [[nodiscard]] BenchResult Row(What what) const {
    BenchResult row{.name = std::move(what.name),
                    .workload = std::move(what.workload),
                    .metric = std::move(what.metric),
                    .unit = std::move(what.unit),
                    .better = what.higher_is_better ? "higher" : "lower",
                    .ours = MedianOf(ours),
                    .runs = static_cast<int>(ours.size())};
    if (theirs.empty()) return row;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); ++i)
      ratios.push_back(what.higher_is_better ? ours[i] / theirs[i] : theirs[i] / ours[i]);
    row.comparison = Comparison{std::move(what.peer), MedianOf(theirs), MedianOf(ratios),
                                std::ranges::min(ratios), std::ranges::max(ratios)};
    return row;
  }
};

}  // namespace onepiece::bench
