// Converts a decoded picture to upright 8-bit RGB. It takes palette, grey and RGB pixels of up to
// 16 bits a component, and planar YUV of 8 bits. Private to cluster/media.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/media/av.h"
#include "cluster/media/image.h"

namespace onepiece::media {

/// The range of YUV samples: kFull is 0 to 255; kLimited is 16 to 235 for luma and 16 to 240 for
/// chroma. Other pixels ignore it.
enum class YuvRange { kFull, kLimited };

/// Converts a decoded frame of at least 1 × 1 pixels, whose size the caller has checked. Drops
/// alpha. Of 16 bits it keeps the high byte. `orientation` is the EXIF value, 1 to 8; any other
/// value counts as 1 (upright). YUV is BT.601. A chroma sample lies in the middle of the luma
/// samples that it covers, as in JPEG and WebP.
///
/// Errors: INVALID_ARGUMENT (BAD_IMAGE: the pixel format is not supported). It may throw
/// std::bad_alloc, which DecodeImage catches.
absl::StatusOr<Image> ToRgb(const AVFrame& frame, YuvRange range, int orientation);

}  // namespace onepiece::media
