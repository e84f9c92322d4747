// The beginning of every stage's Load.
#pragma once

#include <ATen/ATen.h>

#include "absl/status/statusor.h"
#include "stages/sdk/stage.h"

namespace onepiece::model {

/// Sets the threads and returns the device.
///
/// Errors: INVALID_ARGUMENT (no model folder, threads, device, precision); FAILED_PRECONDITION
/// NO_CUDA (the options ask for a GPU and LibTorch has none).
absl::StatusOr<at::Device> PrepareLoad(const sdk::LoadOptions& options);

}  // namespace onepiece::model
