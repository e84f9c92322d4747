// What a model folder or one component folder holds, from headers alone.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "stages/sdk/model_tools.h"

namespace onepiece::wan {

/// `dir` is a diffusers model folder (model_index.json) or one component. Weights that do not fit
/// their config.json are listed in `problems`. `expect` as sdk::ModelTools::Inspect has it; one of
/// the two may be empty. Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_SAFETENSORS.
absl::StatusOr<sdk::InspectReport> InspectModel(const std::string& dir,
                                                const std::string& expect = "");

}  // namespace onepiece::wan
