// Brings a stage's inputs to its device.
#pragma once

#include <ATen/ATen.h>

#include "absl/status/statusor.h"

namespace onepiece::tensor {

/// Returns `host` on `device`: `host` itself on the CPU, else a copy. The copy is made on a stream
/// of its own, so that it does not wait for kernels queued on the current stream.
///
/// Blocking: returns when the copy is done. The caller may then free `host`, and kernels queued on
/// the current stream afterwards see the copy.
///
/// Errors: those of FromException.
absl::StatusOr<at::Tensor> ToDevice(const at::Tensor& host, at::Device device);

}  // namespace onepiece::tensor
