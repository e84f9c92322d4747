// Video frames ↔ mp4 and png bytes in memory, through libav. No temporary files, no LibTorch.
//
// All functions are thread-safe, block for the time of the work, and start no threads: one encoder
// thread makes the same bytes of the same frames every time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"

namespace onepiece::media {

/// Frames that somebody else owns: RGB, 8 bits, row-major [count, height, width, 3].
struct FramesView {
  std::span<const std::byte> rgb;
  std::int64_t count = 0, height = 0, width = 0;
};

/// Decoded frames.
struct Frames {
  std::string rgb;
  std::int64_t count = 0, height = 0, width = 0;
  double fps = 0;

  [[nodiscard]] FramesView view() const {
    return {std::as_bytes(std::span(rgb)), count, height, width};
  }
};

inline constexpr int kDefaultFps = 16;
inline constexpr int kMaxFps = 240;
/// Height and width that the encoders take, in pixels.
inline constexpr std::int64_t kMinSide = 16, kMaxSide = 8192;
inline constexpr std::int64_t kMaxFrames = 4096;

/// H.264 in mp4 that plays anywhere: yuv420p, BT.709, no B-frames, index before the data. 4:2:0
/// needs even sides: an odd last row or column is left out. Errors: INVALID_ARGUMENT (sizes or fps
/// out of bounds, or they do not fit the bytes), RESOURCE_EXHAUSTED (memory), INTERNAL (libav's
/// words).
absl::StatusOr<std::string> EncodeMp4(const FramesView& frames, int fps = kDefaultFps);

/// Frame `index` as png, lossless, any parity of sides. Errors: as EncodeMp4, OUT_OF_RANGE (no such
/// frame).
absl::StatusOr<std::string> EncodePng(const FramesView& frames, std::int64_t index);

/// The frames of the video stream of `file` (mp4 or png), in display order.
/// Errors: INVALID_ARGUMENT (not a video, damaged, or larger than kMaxSide or kMaxFrames).
absl::StatusOr<Frames> Decode(std::span<const std::byte> file);

/// Some frames of a video.
struct Clip {
  Frames frames;           ///< From `first` on.
  std::int64_t first = 0;  ///< Of `frames`, in the video.
  std::int64_t total = 0;  ///< Frames that the video says it has.
};

/// The frames from `first` on, as many as `max_bytes` of pixels hold, at least one. What is before
/// them is decoded and dropped, what is after them is not looked at. `first` beyond the end gives
/// the last frame. Errors: as Decode; CANCELLED when `stop` was requested meanwhile.
absl::StatusOr<Clip> DecodeClip(std::span<const std::byte> file, std::int64_t first,
                                std::size_t max_bytes, const std::stop_token& stop);

}  // namespace onepiece::media
