// What an image file is, without decoding a pixel. Private to stages/media.
//
// libav's own probing is not used: it would open playlists and the like. Every chunk that is not
// needed for the pixels (colour profiles, comments, thumbnails, animation) stays out of `packet`,
// so that nothing in them can cost time or memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/media/av.h"

namespace onepiece::media {

struct ImageFile {
  AVCodecID codec = AV_CODEC_ID_NONE;
  std::int64_t width = 0, height = 0;  ///< As stored, before orientation.
  int orientation = 1;                 ///< EXIF: 1 to 8.
  std::int64_t frame_count = 1;
  std::vector<std::uint8_t> packet;  ///< What the decoder takes.
};

/// Errors: INVALID_ARGUMENT BAD_IMAGE. Sizes and frame_count may be anything.
absl::StatusOr<ImageFile> ReadImageFile(std::span<const std::byte> file);

/// INVALID_ARGUMENT BAD_IMAGE.
absl::Status BadImage(std::string_view message);

}  // namespace onepiece::media
