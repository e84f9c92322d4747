#include <cuda_runtime_api.h>

#include <string>

#include "cluster/base/status.h"
#include "spdlog/spdlog.h"
#include "stages/device/device.h"

namespace onepiece::device {
namespace {

absl::Status Check(int device, const char* what, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  // Clears the error. Otherwise the runtime would report it to its next caller, which is LibTorch.
  (void)cudaGetLastError();
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "CUDA_FAILED",
      "cuda:" + std::to_string(device) + ": " + what + ": " + cudaGetErrorString(error),
      {{"device", "cuda:" + std::to_string(device)}});
}

absl::Status Use(int device) { return Check(device, "choosing it", cudaSetDevice(device)); }

absl::Status Unpin(int device, void* memory) {
  ONEPIECE_RETURN_IF_ERROR(Use(device));
  return Check(device, "unpinning host memory", cudaHostUnregister(memory));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const void>> PinHostMemory(int device, std::span<std::byte> memory) {
  ONEPIECE_RETURN_IF_ERROR(Use(device));
  ONEPIECE_RETURN_IF_ERROR(
      Check(device, "pinning host memory",
            cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable)));
  return std::shared_ptr<const void>(memory.data(), [device](void* pinned) {
    if (const absl::Status status = Unpin(device, pinned); !status.ok())
      spdlog::warn("{}", base::Message(status));
  });
}

absl::StatusOr<std::string> PciBusId(int device) {
  char bus_id[64] = {};
  ONEPIECE_RETURN_IF_ERROR(Check(device, "asking for its bus id",
                                 cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device)));
  return std::string(bus_id);
}

absl::StatusOr<MemoryUse> DeviceMemory(int device) {
  ONEPIECE_RETURN_IF_ERROR(Use(device));
  std::size_t free = 0, total = 0;
  ONEPIECE_RETURN_IF_ERROR(Check(device, "asking for its memory", cudaMemGetInfo(&free, &total)));
  return MemoryUse{static_cast<std::int64_t>(total - free), static_cast<std::int64_t>(total)};
}

}  // namespace onepiece::device
