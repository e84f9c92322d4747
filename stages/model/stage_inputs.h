// What a stage reads of the artifacts that a job brings, checked.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/media/image.h"
#include "stages/sdk/stage.h"

namespace onepiece::model {

/// The F32 tensor of that name with `dimensions` dimensions, none empty, all values finite.
/// Errors: INVALID_ARGUMENT BAD_ARTIFACT.
absl::StatusOr<at::Tensor> InputTensor(const std::vector<sdk::Artifact>& inputs,
                                       std::string_view name, std::int64_t dimensions);

/// The pictures `image` and `last_image`, as far as a job brings them; a last one without a first
/// is refused. Errors: INVALID_ARGUMENT BAD_ARTIFACT (not of a media type image/...), those of
/// media::DecodeImage naming the artifact.
absl::StatusOr<std::vector<media::Image>> InputImages(const std::vector<sdk::Artifact>& inputs);

/// Identifies the files `image` and `last_image`, whatever is there.
std::string HashOfImages(const std::vector<sdk::Artifact>& inputs);

/// INVALID_ARGUMENT BAD_ARTIFACT "artifact NAME: what".
absl::Status BadArtifact(std::string_view name, std::string_view what);

}  // namespace onepiece::model
