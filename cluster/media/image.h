// Image files → RGB pixels in memory, through libav's decoders. No temporary files, no network, no
// LibTorch.
//
// PNG, JPEG, WebP, GIF and BMP, told apart by their first bytes. The result is what the reference's
// load_image makes: turned upright as EXIF says, alpha dropped (not blended), everything else
// (grey, palette, CMYK, 16 bits) converted to 8-bit RGB. A colour profile is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::media {

/// RGB, 8 bits, row-major [height, width, 3].
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::byte> rgb;
};

/// What DecodeImage takes at most: pixels of a side, and of the whole image.
inline constexpr std::int64_t kMaxImageSide = 16384;
inline constexpr std::int64_t kMaxImagePixels = 64'000'000;

/// Decodes one image. Sizes are checked in the file's header before any pixel is decoded, so memory
/// stays at about 16 bytes for each of at most kMaxImagePixels, whatever the file says.
/// Thread-safe; blocks for the time of the work; starts no threads. Errors: INVALID_ARGUMENT
/// BAD_IMAGE (another kind of file, damaged, cut short, empty), IMAGE_TOO_LARGE, IMAGE_ANIMATED
/// (more than one frame: taking the first would drop the others silently); RESOURCE_EXHAUSTED
/// (memory).
absl::StatusOr<Image> DecodeImage(std::span<const std::byte> file);

}  // namespace onepiece::media
