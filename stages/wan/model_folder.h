// Refuses model folders that this family would run wrongly.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace onepiece::wan {

/// Checks that the model folder `dir` (model_index.json and its components) describes a model with
/// one transformer. Wan2.2 A14B has two, of which one computes the noisy steps and the other the
/// rest: a pipeline that runs only one makes bad videos without an error. A folder without
/// model_index.json may still have a second transformer.
///
/// Errors: UNIMPLEMENTED UNSUPPORTED_CONFIG, which names the field; INVALID_ARGUMENT BAD_CONFIG.
absl::Status CheckModelFolder(const std::string& dir);

}  // namespace onepiece::wan
