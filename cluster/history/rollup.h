// Rollups are windows of 10, 60 and 600 s with the least, mean and largest value of every series.
// Internal to cluster/history.
//
// Threading: needs external synchronisation.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "cluster/history/codec.h"

namespace onepiece::history {

inline constexpr std::array<int, 3> kRollupSeconds = {10, 60, 600};

/// The windows of one level. One window is open at a time.
class RollupWindow {
 public:
  explicit RollupWindow(int level_s) : level_s_(level_s) {}
  [[nodiscard]] int level_s() const { return level_s_; }
  /// Returns when the open window began, if a tick at `at_ms` ends it.
  [[nodiscard]] std::optional<std::int64_t> EndedBy(std::int64_t at_ms) const {
    if (start_ms_ < 0 || Start(at_ms) == start_ms_) return std::nullopt;
    return start_ms_;
  }
  /// Returns the cells of the open window.
  [[nodiscard]] std::vector<RollupCell> Cells() const {
    std::vector<RollupCell> cells;
    for (const auto& [id, cell] : cells_) {
      cells.push_back(cell);
      cells.back().mean = cell.mean / cell.count;
    }
    return cells;
  }
  /// Adds the values of a tick.
  /// REQUIRES: `layout` and `values` have the same length.
  void Add(std::int64_t at_ms, const Layout& layout, std::span<const double> values) {
    if (Start(at_ms) != start_ms_) cells_.clear();
    start_ms_ = Start(at_ms);
    for (std::size_t i = 0; i < layout.size(); ++i) {
      const double value = values[i];
      if (std::isnan(value)) continue;
      RollupCell& cell = cells_[layout[i]];
      cell.series = layout[i];
      cell.min = cell.count == 0 ? value : std::min(cell.min, value);
      cell.max = cell.count == 0 ? value : std::max(cell.max, value);
      cell.mean += value;  // Holds the sum while the window is open.
      ++cell.count;
    }
  }

 private:
  [[nodiscard]] std::int64_t Start(std::int64_t at_ms) const {
    return at_ms - at_ms % (std::int64_t{1000} * level_s_);
  }
  int level_s_;
  std::int64_t start_ms_ = -1;
  std::map<std::uint32_t, RollupCell> cells_;
};

}  // namespace onepiece::history
