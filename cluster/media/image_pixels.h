// Converts a decoded picture of any 8- to 16-bit format to upright 8-bit RGB. Private to
// cluster/media.
#pragma once

#include "absl/status/statusor.h"
#include "cluster/media/av.h"
#include "cluster/media/image.h"

namespace onepiece::media {

enum class YuvRange { kFull, kLimited };

/// Converts `frame`. `orientation` is EXIF's, 1 to 8. YUV is BT.601 with chroma samples centred
/// between luma's, as in JPEG and WebP.
///
/// Errors: INVALID_ARGUMENT (BAD_IMAGE: a pixel format that no still image has).
absl::StatusOr<Image> ToRgb(const AVFrame& frame, YuvRange range, int orientation);

}  // namespace onepiece::media
