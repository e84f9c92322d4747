// Reports what a model folder or a component folder holds, from headers alone.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "stages/sdk/model_tools.h"

namespace onepiece::wan {

/// `dir` is a diffusers model folder (model_index.json) or one component. `problems` lists weights
/// that do not fit their config.json. `expect` is that of sdk::ModelTools::Inspect. One of the two
/// arguments may be empty.
///
/// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_SAFETENSORS.
absl::StatusOr<sdk::InspectReport> InspectModel(const std::string& dir,
                                                const std::string& expect = "");

}  // namespace onepiece::wan
