#include "stages/tensor/compute.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <new>

#include "stages/sdk/device_name.h"

namespace onepiece::tensor {

void SetComputeThreads(int threads) {
  at::set_num_threads(threads);
  // LibTorch does not set the count of an OpenBLAS that has threads of its own. Other BLAS
  // libraries follow OpenMP's count.
  using SetThreads = void (*)(int);
  static const auto set =
      reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set != nullptr) set(threads);
}

absl::StatusOr<at::Device> ParseDevice(const std::string& device) {
  if (device == "cpu") return at::Device(at::kCPU);
  if (const auto index = sdk::CudaIndex(device)) {
    return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(*index));
  }
  return base::MakeError(absl::StatusCode::kInvalidArgument, "UNKNOWN_DEVICE",
                         "unknown device \"" + device + "\": use cpu or cuda:N",
                         {{"device", device}});
}

absl::Status FromException(const std::exception& error) {
  const std::string what = error.what();
  // The runtime drops parked models and tries again when memory is short, so that must be told from
  // other errors. LibTorch's CPU allocator says "can't allocate memory", CUDA "out of memory".
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      what.find("out of memory") != std::string::npos ||
                      what.find("can't allocate memory") != std::string::npos;
  // LibTorch appends a backtrace after the first line.
  const std::string line = what.substr(0, what.find('\n'));
  if (memory) return base::MakeError(absl::StatusCode::kResourceExhausted, "OUT_OF_MEMORY", line);
  return base::MakeError(absl::StatusCode::kInternal, "COMPUTE_FAILED", line);
}

}  // namespace onepiece::tensor
