// Runs computations with LibTorch: sets threads, switches autograd off, turns exceptions into a
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
/// differ with the count.
///
/// Threading: LibTorch's part holds for the calling thread only. Call it on the thread that
/// computes.
void SetComputeThreads(int threads);

/// Parses the device of LoadOptions: "cpu" or "cuda:N".
///
/// Errors: INVALID_ARGUMENT UNKNOWN_DEVICE.
absl::StatusOr<at::Device> ParseDevice(const std::string& device);

/// Returns the status of an exception from LibTorch: RESOURCE_EXHAUSTED if memory ran out, else
/// INTERNAL COMPUTE_FAILED.
absl::Status FromException(const std::exception& error);

/// Runs `compute` in inference mode. `compute` returns a StatusOr. An exception from LibTorch
/// becomes its status.
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
