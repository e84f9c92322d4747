// Between safetensors, artifacts and at::Tensor, in place wherever the element type and alignment
// allow.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/message/artifact.h"
#include "stages/tensor/safetensors.h"

namespace onepiece::tensor {

/// Tensor over the mapped bytes, which it keeps alive; a copy only when they are misaligned for
/// their type. Read-only: never write through it. Errors: INVALID_ARGUMENT BAD_SAFETENSORS for
/// element types that LibTorch lacks.
absl::StatusOr<at::Tensor> ViewTensor(std::shared_ptr<const SafetensorsFile> file,
                                      const TensorEntry& entry);

/// ViewTensor converted to `type` on `device`; still a view when nothing has to change.
absl::StatusOr<at::Tensor> LoadTensor(std::shared_ptr<const SafetensorsFile> file,
                                      const TensorEntry& entry, at::ScalarType type,
                                      at::Device device);

/// Tensor over the artifact's bytes, which it keeps alive. Read-only. kBytes artifacts become a U8
/// vector. Errors: INVALID_ARGUMENT BAD_ARTIFACT when shape and size disagree.
absl::StatusOr<at::Tensor> ToTensor(const message::Artifact& artifact);

/// Artifact over the tensor's memory, which it keeps alive; a copy only from a device or a
/// non-contiguous tensor. The tensor must not be written afterwards. Errors: INVALID_ARGUMENT
/// BAD_ARTIFACT for other element types.
absl::StatusOr<message::Artifact> ToArtifact(std::string name, const at::Tensor& tensor);

}  // namespace onepiece::tensor
