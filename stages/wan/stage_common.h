// What the Wan stages have in common. Private to stages/wan.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/media/image.h"
#include "stages/sdk/stage.h"
#include "stages/wan/autoencoder.h"

namespace onepiece::wan {

/// Sets the threads and returns the device. Errors: INVALID_ARGUMENT (no model folder, threads,
/// device, precision); FAILED_PRECONDITION NO_CUDA (a GPU is asked for and LibTorch has none).
absl::StatusOr<at::Device> PrepareLoad(const sdk::LoadOptions& options);

/// The F32 tensor of that name with `dimensions` dimensions, none empty, all values finite.
/// Errors: INVALID_ARGUMENT BAD_ARTIFACT.
absl::StatusOr<at::Tensor> InputTensor(const std::vector<sdk::Artifact>& inputs,
                                       std::string_view name, std::int64_t dimensions);

/// The pictures `image` and `last_image`, as far as a job brings them; a last one without a first
/// is refused. Errors: INVALID_ARGUMENT BAD_ARTIFACT (not of a media type image/...), those of
/// media::DecodeImage naming the artifact.
absl::StatusOr<std::vector<media::Image>> InputImages(const std::vector<sdk::Artifact>& inputs);

/// The parameter vae_tiling (default false): whether frames are worked off in tiles. Errors:
/// INVALID_ARGUMENT BAD_PARAMETER.
absl::StatusOr<std::optional<WanVae::Tiling>> ReadTiling(const sdk::Parameters& parameters);

/// Identifies the files `image` and `last_image`, whatever is there.
std::string HashOfImages(const std::vector<sdk::Artifact>& inputs);

/// What the stages of this process share: weights (ComponentStore) and the conditioning cache.
std::vector<sdk::StageMetric> ProcessMetrics();

/// INVALID_ARGUMENT BAD_ARTIFACT "artifact NAME: what".
absl::Status BadArtifact(std::string_view name, std::string_view what);

}  // namespace onepiece::wan
