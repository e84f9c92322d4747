// The codec turns numbers and shapes into the bytes of a recording's rows, and back. Internal to
// cluster/history.
//
// A frame is the doubles of one tick. Each double is XORed with the same series' double in the
// first frame of its layout, so a number that has not changed is 0. The first bytes of all doubles
// come first, then the second bytes and so on, so that equal bytes are beside each other. The
// result is compressed with zstd. The format is lossless, and NaN means unknown (docs/console.md,
// "Recordings").
//
// Threading: a Codec is used by one thread at a time.
// Errors: DATA_LOSS (DAMAGED) for bytes that are not what they claim to be. Sizes are checked
// first.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::history {

/// The ids of a frame's series, in ascending order.
using Layout = std::vector<std::uint32_t>;

/// One series in one window of a rollup.
struct RollupCell {
  std::uint32_t series = 0;
  std::uint32_t count = 0;  ///< The number of known samples.
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
  /// Refuses bytes that claim to be longer than `max_bytes`, before it takes memory for them.
  absl::StatusOr<std::string> Expand(std::string_view packed,
                                     std::size_t max_bytes = kMaxPlainBytes);

  /// Packs the values of one tick. `reference` is empty for the layout's first frame, else as long
  /// as `values`.
  std::string PackFrame(std::span<const double> values, std::span<const double> reference);
  absl::StatusOr<std::vector<double>> UnpackFrame(std::string_view packed, std::size_t count,
                                                  std::span<const double> reference);
  std::string PackLayout(const Layout& layout);
  absl::StatusOr<Layout> UnpackLayout(std::string_view packed);
  /// Packs one window.
  /// REQUIRES: `cells` is sorted by series.
  std::string PackRollup(std::span<const RollupCell> cells);
  absl::StatusOr<std::vector<RollupCell>> UnpackRollup(std::string_view packed);

 private:
  ZSTD_CCtx* packer_;
  ZSTD_DCtx* expander_;
};

/// Returns the checksum of a row. It covers the row's time, so a blob in another row is found.
/// `before` is the checksum of the row before, where rows build on each other. The next row then
/// shows that a row was lost.
std::uint32_t RowSum(std::int64_t at_ms, std::string_view blob, std::uint32_t before = 0);
/// What a frame depends on: the number of its tick, and the checksums of its layout and of its
/// shape's last row.
struct FramePlace {
  std::int64_t at_ms = 0, tick = 0;
  std::uint32_t layout_sum = 0, shape_sum = 0;
};
std::uint32_t FrameSum(const FramePlace& place, std::string_view blob);
/// Returns the checksum of a window, which also covers the window's level.
std::uint32_t RollupSum(int level_s, std::int64_t at_ms, std::string_view blob);
std::uint32_t GapSum(std::int64_t from_ms, std::int64_t to_ms, std::string_view reason);

absl::Status Damaged(std::string_view what);

}  // namespace onepiece::history
