// Facts about the Wan2.1 family.
#pragma once

#include <string_view>

#include "stages/model/generation_settings.h"

namespace onepiece::wan {

/// A video of 81 frames of 1280x720 has 75600 tokens.
inline constexpr model::LatentGeometry kGeometry = {.spatial_compression = 8,
                                                    .temporal_compression = 4,
                                                    .side_multiple = 16,
                                                    .max_side = 2048,
                                                    .max_frames = 257,
                                                    .max_tokens = 100'000};

/// The component classes. Other families use those of the encoders too.
inline constexpr std::string_view kOwnClasses[] = {"WanTransformer3DModel", "AutoencoderKLWan"};
inline constexpr std::string_view kSharedClasses[] = {"UMT5EncoderModel", "CLIPVisionModel"};

/// The length in tokens to which the Wan pipelines pad text embeddings.
inline constexpr int kMaxSequenceLength = 512;

}  // namespace onepiece::wan
