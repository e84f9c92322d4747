// Runs one component on recorded inputs and compares it with recorded outputs (layout:
// tests/wan/goldens/README.md).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "stages/sdk/model_tools.h"

namespace onepiece::wan {

/// Verifies the component in `dir` against its io.safetensors. A folder without config.json is a
/// scheduler's. Sets the compute threads of the calling thread. `device`: "cpu" or "cuda:N".
///
/// Errors: those of loading; NOT_FOUND without io.safetensors; INVALID_ARGUMENT BAD_GOLDEN when
/// inputs are missing; UNIMPLEMENTED for components that are not supported yet.
absl::StatusOr<sdk::VerifyReport> VerifyComponent(const std::string& dir, double tolerance,
                                                  int threads, const std::string& device = "cpu");

}  // namespace onepiece::wan
