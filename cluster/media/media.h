// Encodes video frames as mp4 and png files in memory, and decodes them, with libav. It uses no
// temporary files and no LibTorch.
//
// Threading: the functions may be called from any thread. They start no threads, because one
// encoder thread makes the same bytes of the same frames every time.
// Blocking: for the time of the work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"

namespace onepiece::media {

/// Frames in 8-bit RGB, row-major [count, height, width, 3].
///
/// Ownership: borrows the pixels.
struct FramesView {
  std::span<const std::byte> rgb;
  std::int64_t count = 0, height = 0, width = 0;
};

/// Decoded frames, in the format of FramesView.
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
/// The bounds of height and width for the encoders, in pixels.
inline constexpr std::int64_t kMinSide = 16, kMaxSide = 8192;
inline constexpr std::int64_t kMaxFrames = 4096;

/// Encodes frames as H.264 in an mp4 that plays everywhere: yuv420p, BT.709, no B-frames, the index
/// before the data. 4:2:0 needs even sides, so an odd last row or column is left out. `comment` is
/// kept in the file's metadata, unless it is empty.
///
/// Errors: INVALID_ARGUMENT (sizes or fps out of bounds, or they do not fit the bytes),
/// RESOURCE_EXHAUSTED (memory), INTERNAL (libav's text), UNIMPLEMENTED (this libav has no encoder).
absl::StatusOr<std::string> EncodeMp4(const FramesView& frames, int fps = kDefaultFps,
                                      const std::string& comment = "");

/// Encodes frame `index` as png, which is lossless. Sides may be odd. `comment`, which is Latin-1,
/// becomes a text chunk "Comment", unless it is empty.
///
/// Errors: those of EncodeMp4, OUT_OF_RANGE (there is no such frame).
absl::StatusOr<std::string> EncodePng(const FramesView& frames, std::int64_t index,
                                      const std::string& comment = "");

/// Decodes the frames of the video stream of `file` (mp4 or png), in display order.
///
/// Errors: INVALID_ARGUMENT (not a video, damaged, or larger than kMaxSide or kMaxFrames).
absl::StatusOr<Frames> Decode(std::span<const std::byte> file);

/// Some frames of a video.
struct Clip {
  Frames frames;           ///< The frames from `first` on.
  std::int64_t first = 0;  ///< The index in the video of the first one.
  std::int64_t total = 0;  ///< The number of frames that the video says it has.
};

/// Decodes the frames from `first` on, as many as `max_bytes` of pixels hold, and at least one.
/// Frames before them are decoded and dropped, and frames after them are not looked at. If `first`
/// is beyond the end, the result is the last frame.
///
/// Errors: those of Decode, CANCELLED when a stop of `stop` was requested meanwhile.
absl::StatusOr<Clip> DecodeClip(std::span<const std::byte> file, std::int64_t first,
                                std::size_t max_bytes, const std::stop_token& stop);

}  // namespace onepiece::media
