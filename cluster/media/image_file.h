// Reads what an image file is, without decoding a pixel. Private to cluster/media.
//
// libav's own probing is not used, because it would open playlists and the like. Chunks that are
// not needed for the pixels (colour profiles, comments, thumbnails, animation) stay out of
// `packet`, so that nothing in them can cost time or memory.
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
  std::int64_t width = 0, height = 0;  ///< As stored, before the image is turned upright.
  int orientation = 1;                 ///< EXIF's orientation, 1 to 8.
  std::int64_t frame_count = 1;
  std::vector<std::uint8_t> packet;  ///< The bytes for the decoder.
};

/// Reads an image file. The caller must check the sizes and frame_count, which may be anything.
///
/// Errors: INVALID_ARGUMENT (BAD_IMAGE).
absl::StatusOr<ImageFile> ReadImageFile(std::span<const std::byte> file);

/// Makes the error INVALID_ARGUMENT (BAD_IMAGE).
absl::Status BadImage(std::string_view message);

}  // namespace onepiece::media
