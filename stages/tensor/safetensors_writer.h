// Writes safetensors files.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "absl/status/status.h"

namespace onepiece::tensor {

/// Writes F32 tensors and makes them durable (fsync). Overwrites an existing file, and not
/// atomically: a caller that needs atomicity renames the file or its folder.
///
/// Errors: INVALID_ARGUMENT BAD_TENSOR (not F32); FAILED_PRECONDITION CANNOT_WRITE.
absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, at::Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace onepiece::tensor
