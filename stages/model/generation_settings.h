// Reads and checks the settings of a job. Without LibTorch.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "stages/sdk/stage.h"

namespace onepiece::model {

/// The way in which the models of a family cut a video into latent positions and tokens, and the
/// largest video that they take.
struct LatentGeometry {
  std::int64_t spatial_compression = 1;   ///< Pixels of a latent position, along each side.
  std::int64_t temporal_compression = 1;  ///< Frames of a latent frame; the first has one.
  /// Pixels of a transformer token, along each side; a token spans one latent frame.
  std::int64_t side_multiple = 1;
  std::int64_t max_side = 0, max_frames = 0, max_tokens = 0;  ///< Limits of one video.
};

inline constexpr double kMaxGuidance = 100;

struct VideoSize {
  std::int64_t width = 0, height = 0;  ///< Pixels; multiples of LatentGeometry::side_multiple.
  std::int64_t frames = 0;             ///< 1 and a multiple of temporal_compression.

  /// [1, channels, frames, height, width] in latent positions.
  [[nodiscard]] std::array<std::int64_t, 5> LatentShape(const LatentGeometry& geometry,
                                                        std::int64_t channels) const;
};

struct GenerationSettings : VideoSize {
  std::int64_t seed = 0;
  int steps = 0;
  double guidance_scale = 0;  ///< Classifier-free guidance runs only above 1.
};

/// Reads width, height and num_frames.
///
/// Errors: INVALID_ARGUMENT BAD_PARAMETER, which names the parameter.
absl::StatusOr<VideoSize> ReadVideoSize(const sdk::Parameters& parameters,
                                        const LatentGeometry& geometry);

/// Reads width, height, num_frames, seed, steps and guidance_scale.
///
/// Errors: those of ReadVideoSize.
absl::StatusOr<GenerationSettings> ReadSettings(const sdk::Parameters& parameters,
                                                const LatentGeometry& geometry);

}  // namespace onepiece::model
