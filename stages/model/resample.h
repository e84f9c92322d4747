// Resizes 8-bit images, bit for bit as Pillow does, which the reference's image processors call.
// Without LibTorch.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cluster/media/image.h"

namespace onepiece::model {

/// The numbers are Pillow's. preprocessor_config.json stores them.
enum class ResampleFilter { kLanczos = 1, kBilinear = 2, kBicubic = 3 };

/// Returns `image` in `width` x `height` pixels. If the image shrinks, the filter is widened by the
/// same factor (antialiasing). Resizes columns first and then rows, with 8-bit values in between
/// and coefficients of 22 fractional bits.
///
/// REQUIRES: the image's bytes are those of its sides, which are above 0.
///
/// Errors: INVALID_ARGUMENT IMAGE_TOO_LARGE (a side of the result is outside 1 to
/// media::kMaxImageSide, or one of the two images has more than media::kMaxImagePixels pixels),
/// RESOURCE_EXHAUSTED.
absl::StatusOr<media::Image> Resample(const media::Image& image, std::int64_t width,
                                      std::int64_t height, ResampleFilter filter);

}  // namespace onepiece::model
