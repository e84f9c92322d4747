// Reads ticks from a recording's file. Internal to cluster/history.
//
// Ownership: a FrameReader must be destroyed before its File.
// Threading: used by one thread at a time.
// Errors: those of File. DATA_LOSS (DAMAGED) names the tick.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cluster/history/codec.h"
#include "cluster/history/file.h"

namespace onepiece::history {

/// Ticks that are further apart have a gap between them, because the computer slept or nobody
/// asked.
inline constexpr std::int64_t kHoleMs = 5'000;
/// No recorder writes a later tick. This bound keeps sums and differences of times within 64 bits.
inline constexpr std::int64_t kMaxTimeMs = std::int64_t{1} << 50;

struct Frame {
  std::int64_t at_ms = 0, tick = 0;
  std::uint32_t shape_sum = 0;  ///< The checksum of the last keyframe or change up to this tick.
  std::shared_ptr<const Layout> layout;
  std::vector<double> values;  ///< One for each series of the layout. NaN means unknown.
};

class FrameReader {
 public:
  static absl::StatusOr<FrameReader> Create(const File& file);

  /// Returns the last tick at or before `at_ms`. Fails when a tick between the two is lost.
  /// REQUIRES: the caller has looked for gaps.
  absl::StatusOr<std::optional<Frame>> AtOrBefore(std::int64_t at_ms);
  /// Calls `take` with the ticks from `from_ms` to `to_ms`, both included, oldest first.
  absl::Status Scan(std::int64_t from_ms, std::int64_t to_ms,
                    absl::FunctionRef<void(const Frame& frame)> take);

 private:
  FrameReader() : codec_(std::make_unique<Codec>()) {}
  absl::Status UseLayoutOf(std::int64_t at_ms);
  absl::StatusOr<Frame> Read(const Statement& row);
  absl::Status CheckNoneAfter(const Frame& frame);

  Statement before_, after_, scan_, layout_, next_layout_, reference_;
  std::unique_ptr<Codec> codec_;
  // The layout in use. It holds for the ticks from its own time until the next layout's.
  std::int64_t layout_ms_ = -1, until_ms_ = -1;
  std::uint32_t layout_sum_ = 0;
  std::shared_ptr<const Layout> columns_;
  std::vector<double> first_;
};

}  // namespace onepiece::history
