// Replays a generation that the reference implementation recorded, from its prompt string on.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "stages/sdk/model_tools.h"

namespace onepiece::wan {

/// Runs the prompts and settings in the metadata of `reference` (safetensors) on the model in
/// `model_dir`, from the initial noise stored there, and compares every recorded output: ids
/// exactly, floats by relative error (1e-3), video by the mean difference of its 8-bit values (2).
/// `skipped` counts outputs of parts that this build lacks. Sets the compute threads of the calling
/// thread.
///
/// Errors: those of loading and computing; INVALID_ARGUMENT BAD_REFERENCE (metadata or noise are
/// missing or do not fit); UNIMPLEMENTED for image-to-video recordings.
absl::StatusOr<sdk::VerifyReport> VerifyReference(const std::string& model_dir,
                                                  const std::string& reference, int threads,
                                                  const std::string& device = "cpu");

}  // namespace onepiece::wan
