// Reads and checks the artifacts that a job brings to a stage.
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

/// Returns the F32 tensor of that name. It has `dimensions` dimensions, none of them empty, and all
/// values are finite.
///
/// Errors: INVALID_ARGUMENT BAD_ARTIFACT.
absl::StatusOr<at::Tensor> InputTensor(const std::vector<sdk::Artifact>& inputs,
                                       std::string_view name, std::int64_t dimensions);

/// Returns the pictures `image` and `last_image`, as far as the job brings them.
///
/// Errors: INVALID_ARGUMENT BAD_ARTIFACT (a last image without a first one, not of a media type
/// image/...), and those of media::DecodeImage, which name the artifact.
absl::StatusOr<std::vector<media::Image>> InputImages(const std::vector<sdk::Artifact>& inputs);

/// Returns a text that identifies the files `image` and `last_image`, as far as they exist.
std::string HashOfImages(const std::vector<sdk::Artifact>& inputs);

/// Returns INVALID_ARGUMENT BAD_ARTIFACT "artifact NAME: what".
absl::Status BadArtifact(std::string_view name, std::string_view what);

}  // namespace onepiece::model
