#include "stages/model/prepare_load.h"

#include <string>

#include "cluster/base/status.h"
#include "stages/model/weights.h"
#include "stages/tensor/compute.h"

namespace onepiece::model {

absl::StatusOr<at::Device> PrepareLoad(const sdk::LoadOptions& options) {
  if (options.model_dir.empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_MODEL",
                           "the stage needs a model folder");
  }
  if (options.threads < 1) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_THREADS",
                           std::to_string(options.threads) + " threads cannot compute");
  }
  tensor::SetComputeThreads(options.threads);
  // By default a GPU's convolutions round F32 to TF32, which has three decimal digits. Matrix
  // products do so if the environment says it.
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, tensor::ParseDevice(options.device));
  if (device.is_cuda() && !at::hasCUDA()) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_CUDA",
                           "device " + options.device +
                               ": this LibTorch has no CUDA, or sees no GPU; use cpu, or see "
                               "docs/cuda.md",
                           {{"device", options.device}});
  }
  ONEPIECE_RETURN_IF_ERROR(ParsePrecision(options.precision, device).status());
  return device;
}

}  // namespace onepiece::model
