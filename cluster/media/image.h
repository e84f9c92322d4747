// Decodes image files into RGB pixels in memory, with libav's decoders. It uses no temporary files,
// no network and no LibTorch.
//
// The files may be PNG, JPEG, WebP, GIF or BMP, which it tells apart by their first bytes. The
// result is the same as that of load_image in the reference implementation: the image is turned
// upright as EXIF says, alpha is dropped and not blended, and everything else (grey, palette, CMYK,
// 16 bits) is converted to 8-bit RGB. A colour profile is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::media {

/// An image in 8-bit RGB, row-major [height, width, 3].
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::byte> rgb;
};

/// The limits of DecodeImage: pixels of one side, and of the whole image.
inline constexpr std::int64_t kMaxImageSide = 16384;
inline constexpr std::int64_t kMaxImagePixels = 64'000'000;

/// Decodes one image. It checks the sizes in the file's header before it decodes any pixel. Memory
/// therefore stays at about 16 bytes for each of at most kMaxImagePixels, whatever the file says.
///
/// Threading: may be called from any thread. Starts no threads.
/// Blocking: for the time of the work.
/// Errors: INVALID_ARGUMENT (BAD_IMAGE: another kind of file, damaged, truncated or empty;
/// IMAGE_TOO_LARGE; IMAGE_ANIMATED: more than one frame, because taking the first one would
/// silently drop the others), RESOURCE_EXHAUSTED (memory).
absl::StatusOr<Image> DecodeImage(std::span<const std::byte> file);

}  // namespace onepiece::media
