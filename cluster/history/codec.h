// How numbers and shapes become the bytes of a recording's rows. Internal to gui/history.
//
// Format     A frame is the tick's doubles, each XORed with the same series' double in the frame of
//            its layout (so what has not changed is 0), the first bytes of all, then the second
//            ones and so on (bytes alike beside each other), compressed with zstd. Lossless, NaN
//            is unknown. docs/console.md, "Recordings".
// Errors     DATA_LOSS (DAMAGED) for bytes that are not what they say; sizes are checked first.
// Threading  Codec is thread-confined.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::gui::history {

/// Ids of a frame's series, ascending.
using Layout = std::vector<std::uint32_t>;

/// What one series did in one window of a rollup.
struct RollupCell {
  std::uint32_t series = 0;
  std::uint32_t count = 0;  ///< Samples that were known.
  double min = 0, mean = 0, max = 0;
};

class Codec {
 public:
  static constexpr std::size_t kMaxPlainBytes = std::size_t{256} << 20;
  static constexpr std::size_t kMaxSeries = 200'000;

  Codec();
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  std::string Compress(std::string_view plain);
  absl::StatusOr<std::string> Expand(std::string_view packed);

  /// `reference` is empty (the layout's first frame) or as long as `values`.
  std::string PackFrame(std::span<const double> values, std::span<const double> reference);
  absl::StatusOr<std::vector<double>> UnpackFrame(std::string_view packed, std::size_t count,
                                                  std::span<const double> reference);
  std::string PackLayout(const Layout& layout);
  absl::StatusOr<Layout> UnpackLayout(std::string_view packed);
  /// REQUIRES: ascending series.
  std::string PackRollup(std::span<const RollupCell> cells);
  absl::StatusOr<std::vector<RollupCell>> UnpackRollup(std::string_view packed);

 private:
  ZSTD_CCtx* packer_;
  ZSTD_DCtx* expander_;
};

/// Of a row: a blob that stands at another time than its own is found too. `before`: the sum of the
/// row before, where rows build on each other, so that one that is lost is found by the next.
std::uint32_t RowSum(std::int64_t at_ms, std::string_view blob, std::uint32_t before = 0);
/// What a frame leans on: which tick it is, and the sums of its layout and of its shape's last row.
struct FramePlace {
  std::int64_t at_ms = 0, tick = 0;
  std::uint32_t layout_sum = 0, shape_sum = 0;
};
std::uint32_t FrameSum(const FramePlace& place, std::string_view blob);
/// Of a window: of this level, too.
std::uint32_t RollupSum(int level_s, std::int64_t at_ms, std::string_view blob);
std::uint32_t GapSum(std::int64_t from_ms, std::int64_t to_ms, std::string_view reason);

absl::Status Damaged(std::string_view what);

}  // namespace onepiece::gui::history
