#include "stages/model/generation_settings.h"

#include <limits>
#include <string>

#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/model/schedulers.h"

namespace onepiece::wan {
namespace {

absl::StatusOr<std::int64_t> ReadSide(const sdk::Parameters& parameters, std::string_view name) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t side,
                            sdk::IntParameter(parameters, name, kSideMultiple, kMaxSidePixels));
  if (side % kSideMultiple != 0) {
    return sdk::BadParameter(
        name, std::to_string(side) + " is not a multiple of " + std::to_string(kSideMultiple));
  }
  return side;
}

}  // namespace

std::array<std::int64_t, 5> VideoSize::LatentShape(std::int64_t channels) const {
  return {1, channels, (frames - 1) / kTemporalCompression + 1, height / kSpatialCompression,
          width / kSpatialCompression};
}

absl::StatusOr<VideoSize> ReadVideoSize(const sdk::Parameters& parameters) {
  VideoSize size;
  ONEPIECE_ASSIGN_OR_RETURN(size.width, ReadSide(parameters, "width"));
  ONEPIECE_ASSIGN_OR_RETURN(size.height, ReadSide(parameters, "height"));
  ONEPIECE_ASSIGN_OR_RETURN(size.frames,
                            sdk::IntParameter(parameters, "num_frames", 1, kMaxVideoFrames));
  if ((size.frames - 1) % kTemporalCompression != 0) {
    return sdk::BadParameter("num_frames", std::to_string(size.frames) + " is not 4k + 1");
  }
  const auto shape = size.LatentShape(1);
  const std::int64_t tokens = shape[2] * (shape[3] / 2) * (shape[4] / 2);
  if (tokens > kMaxTokens) {
    return sdk::BadParameter(
        "width", std::to_string(size.width) + "x" + std::to_string(size.height) + " x " +
                     std::to_string(size.frames) + " frames is too large a video");
  }
  return size;
}

absl::StatusOr<GenerationSettings> ReadSettings(const sdk::Parameters& parameters) {
  ONEPIECE_ASSIGN_OR_RETURN(const VideoSize size, ReadVideoSize(parameters));
  GenerationSettings settings{size};
  ONEPIECE_ASSIGN_OR_RETURN(
      settings.seed,
      sdk::IntParameter(parameters, "seed", 0, std::numeric_limits<std::int64_t>::max()));
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t steps,
                            sdk::IntParameter(parameters, "steps", 1, kMaxSteps));
  settings.steps = static_cast<int>(steps);
  ONEPIECE_ASSIGN_OR_RETURN(settings.guidance_scale,
                            sdk::NumberParameter(parameters, "guidance_scale", 0, kMaxGuidance));
  return settings;
}

}  // namespace onepiece::wan
