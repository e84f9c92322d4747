// What a job asks for, checked. Without LibTorch.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "stages/sdk/stage.h"

namespace onepiece::wan {

/// Pixels and frames of one latent position, and the sides that the transformer's patches need.
inline constexpr std::int64_t kSpatialCompression = 8, kTemporalCompression = 4, kSideMultiple = 16;
inline constexpr std::int64_t kMaxSidePixels = 2048, kMaxVideoFrames = 257;
/// Largest video in transformer tokens (positions of 16x16 pixels x 4 frames): 81 frames of
/// 1280x720 are 75600.
inline constexpr std::int64_t kMaxTokens = 100'000;
inline constexpr double kMaxGuidance = 100;

struct VideoSize {
  std::int64_t width = 0, height = 0;  ///< Pixels; multiples of kSideMultiple.
  std::int64_t frames = 0;             ///< 4k + 1.

  /// [1, channels, frames, height, width] in latent positions.
  [[nodiscard]] std::array<std::int64_t, 5> LatentShape(std::int64_t channels) const;
};

struct GenerationSettings : VideoSize {
  std::int64_t seed = 0;
  int steps = 0;
  double guidance_scale = 0;  ///< Classifier-free guidance runs only above 1.
};

/// Reads width, height and num_frames.
/// Errors: INVALID_ARGUMENT with reason BAD_PARAMETER and the parameter's name.
absl::StatusOr<VideoSize> ReadVideoSize(const sdk::Parameters& parameters);

/// Reads seed, steps and guidance_scale too. Errors: those of ReadVideoSize.
absl::StatusOr<GenerationSettings> ReadSettings(const sdk::Parameters& parameters);

}  // namespace onepiece::wan
