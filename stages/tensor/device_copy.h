// The way of a stage's inputs to its device.
#pragma once

#include <ATen/ATen.h>

#include "absl/status/statusor.h"

namespace onepiece::tensor {

/// `host` on `device`: itself on the CPU, else a copy, made on a stream of its own, so that it
/// waits for no kernel that is queued on the current one. Returns when the copy is done: `host` may
/// go then, and whatever is queued on the current stream afterwards sees the copy. Errors: those of
/// FromException.
absl::StatusOr<at::Tensor> ToDevice(const at::Tensor& host, at::Device device);

}  // namespace onepiece::tensor
