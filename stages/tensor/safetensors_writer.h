// Writer of safetensors files.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "absl/status/status.h"

namespace onepiece::tensor {

/// Writes F32 tensors, whole and onto the disk (fsync), over a file that may be there: give it the
/// atomicity it needs by the folder or the name. Errors: INVALID_ARGUMENT BAD_TENSOR (not F32);
/// FAILED_PRECONDITION CANNOT_WRITE.
absl::Status WriteSafetensors(const std::string& path,
                              const std::map<std::string, at::Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace onepiece::tensor
