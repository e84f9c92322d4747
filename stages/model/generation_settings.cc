#include "stages/model/generation_settings.h"

#include <limits>
#include <string>

#include "cluster/base/status.h"
#include "stages/model/schedulers.h"
#include "stages/sdk/parameters.h"

namespace onepiece::model {
namespace {

absl::StatusOr<std::int64_t> ReadSide(const sdk::Parameters& parameters, std::string_view name,
                                      const LatentGeometry& geometry) {
  const std::int64_t multiple = geometry.side_multiple;
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t side,
                            sdk::IntParameter(parameters, name, multiple, geometry.max_side));
  if (side % multiple != 0) {
    return sdk::BadParameter(
        name, std::to_string(side) + " is not a multiple of " + std::to_string(multiple));
  }
  return side;
}

}  // namespace

std::array<std::int64_t, 5> VideoSize::LatentShape(const LatentGeometry& geometry,
                                                   std::int64_t channels) const {
  return {1, channels, (frames - 1) / geometry.temporal_compression + 1,
          height / geometry.spatial_compression, width / geometry.spatial_compression};
}

absl::StatusOr<VideoSize> ReadVideoSize(const sdk::Parameters& parameters,
                                        const LatentGeometry& geometry) {
  VideoSize size;
  ONEPIECE_ASSIGN_OR_RETURN(size.width, ReadSide(parameters, "width", geometry));
  ONEPIECE_ASSIGN_OR_RETURN(size.height, ReadSide(parameters, "height", geometry));
  ONEPIECE_ASSIGN_OR_RETURN(size.frames,
                            sdk::IntParameter(parameters, "num_frames", 1, geometry.max_frames));
  const std::int64_t group = geometry.temporal_compression;
  if ((size.frames - 1) % group != 0) {
    return sdk::BadParameter(
        "num_frames", std::to_string(size.frames) + " is not " + std::to_string(group) + "k + 1");
  }
  const std::int64_t tokens = ((size.frames - 1) / group + 1) *
                              (size.height / geometry.side_multiple) *
                              (size.width / geometry.side_multiple);
  if (tokens > geometry.max_tokens) {
    return sdk::BadParameter(
        "width", std::to_string(size.width) + "x" + std::to_string(size.height) + " x " +
                     std::to_string(size.frames) + " frames is too large a video");
  }
  return size;
}

absl::StatusOr<GenerationSettings> ReadSettings(const sdk::Parameters& parameters,
                                                const LatentGeometry& geometry) {
  ONEPIECE_ASSIGN_OR_RETURN(const VideoSize size, ReadVideoSize(parameters, geometry));
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

}  // namespace onepiece::model
