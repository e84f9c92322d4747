#include "cluster/base/status.h"
#include "stages/device/device.h"

namespace onepiece::device {
namespace {

absl::Status NoCuda() {
  return base::MakeError(absl::StatusCode::kUnimplemented, "NO_CUDA",
                         "this build has no CUDA: configure it where the CUDA toolkit is found, "
                         "with ONEPIECE_CUDA=ON");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const void>> PinHostMemory(int /*device*/,
                                                          std::span<std::byte> /*memory*/) {
  return NoCuda();
}

absl::StatusOr<std::string> PciBusId(int /*device*/) { return NoCuda(); }

absl::StatusOr<MemoryUse> DeviceMemory(int /*device*/) { return NoCuda(); }

}  // namespace onepiece::device
