// How every computation with LibTorch is run: threads set, no autograd, exceptions turned into a
// status.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <exception>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/status.h"

namespace onepiece::tensor {

/// Sets the threads of LibTorch and of the BLAS below it (OpenBLAS keeps its own count). Sums
/// differ with the count. LibTorch's part holds for the calling thread only: call it on the thread
/// that computes.
void SetComputeThreads(int threads);

/// The device of LoadOptions: "cpu" or "cuda:N". Errors: INVALID_ARGUMENT UNKNOWN_DEVICE.
absl::StatusOr<at::Device> ParseDevice(const std::string& device);

/// Status of an exception out of LibTorch: RESOURCE_EXHAUSTED when memory ran out, else INTERNAL
/// COMPUTE_FAILED.
absl::Status FromException(const std::exception& error);

/// Runs `compute` in inference mode. `compute` returns a StatusOr; what LibTorch throws becomes its
/// status.
template <typename Compute>
auto Guarded(Compute&& compute) -> decltype(compute()) {
  try {
    const c10::InferenceMode guard;
    return compute();
  } catch (const std::exception& error) {
    return FromException(error);
  }
}

}  // namespace onepiece::tensor
