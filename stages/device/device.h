// What this process asks of a CUDA device itself, through the CUDA runtime and without LibTorch
// (docs/cuda.md).
//
// A build without the CUDA toolkit answers UNIMPLEMENTED NO_CUDA to all of it. All functions are
// thread-safe; they make `device` (>= 0) the calling thread's current one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onepiece::device {

/// Makes `memory` page-locked, so that `device` copies from it directly, for as long as the result
/// lives; the result must go before the memory does. Slow (milliseconds): for memory that is used
/// again and again.
/// Errors: UNIMPLEMENTED NO_CUDA; FAILED_PRECONDITION CUDA_FAILED (no driver, no such device, the
/// limit of locked memory).
absl::StatusOr<std::shared_ptr<const void>> PinHostMemory(int device, std::span<std::byte> memory);

/// Where `device` sits ("0000:65:00.0"): its name outside of CUDA, whose numbers depend on the
/// process.
/// Errors: as PinHostMemory's.
absl::StatusOr<std::string> PciBusId(int device);

struct MemoryUse {
  std::int64_t used_bytes = 0;  ///< By all processes.
  std::int64_t total_bytes = 0;
};

/// The memory of `device`.
/// Errors: as PinHostMemory's.
absl::StatusOr<MemoryUse> DeviceMemory(int device);

}  // namespace onepiece::device
