// CUDA devices through the CUDA runtime, without LibTorch (docs/cuda.md).
//
// In a build without the CUDA toolkit all functions return UNIMPLEMENTED (NO_CUDA). All functions
// are thread-safe. They make `device` (>= 0) the current device of the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onepiece::device {

/// Makes `memory` page-locked as long as the returned object lives, so that `device` copies from it
/// directly. The object must be destroyed before the memory is freed. Pinning takes milliseconds,
/// so it is for memory that is used many times.
///
/// Errors: UNIMPLEMENTED (NO_CUDA), FAILED_PRECONDITION (CUDA_FAILED: no driver, no such device, or
/// the limit of locked memory is reached).
absl::StatusOr<std::shared_ptr<const void>> PinHostMemory(int device, std::span<std::byte> memory);

/// Returns the PCI address of `device`, like "0000:65:00.0". It names the device outside CUDA,
/// whose device numbers depend on the process.
///
/// Errors: those of PinHostMemory.
absl::StatusOr<std::string> PciBusId(int device);

struct MemoryUse {
  std::int64_t used_bytes = 0;  ///< By all processes.
  std::int64_t total_bytes = 0;
};

/// Returns the memory of `device`.
///
/// Errors: those of PinHostMemory.
absl::StatusOr<MemoryUse> DeviceMemory(int device);

}  // namespace onepiece::device
