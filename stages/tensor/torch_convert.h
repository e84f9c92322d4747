// Converts between safetensors, artifacts and at::Tensor, in place where the element type and
// alignment allow.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/message/artifact.h"
#include "stages/tensor/safetensors.h"

namespace onepiece::tensor {

/// Returns a tensor over the mapped bytes, or a copy if they are misaligned for their type. Never
/// write through it.
///
/// Ownership: the tensor keeps the bytes alive.
///
/// Errors: INVALID_ARGUMENT BAD_SAFETENSORS for element types that LibTorch lacks.
absl::StatusOr<at::Tensor> ViewTensor(std::shared_ptr<const SafetensorsFile> file,
                                      const TensorEntry& entry);

/// Returns ViewTensor converted to `type` on `device`. It is still a view if nothing has to change.
absl::StatusOr<at::Tensor> LoadTensor(std::shared_ptr<const SafetensorsFile> file,
                                      const TensorEntry& entry, at::ScalarType type,
                                      at::Device device);

/// Returns a tensor over the artifact's bytes. Never write through it. kBytes artifacts become a U8
/// vector.
///
/// Ownership: the tensor keeps the bytes alive.
///
/// Errors: INVALID_ARGUMENT BAD_ARTIFACT if shape and size disagree.
absl::StatusOr<at::Tensor> ToTensor(const message::Artifact& artifact);

/// Returns an artifact over the tensor's memory. It copies a tensor on a device and one that is not
/// contiguous. Nobody may write to the tensor afterwards.
///
/// Ownership: the artifact keeps the memory alive.
///
/// Errors: INVALID_ARGUMENT BAD_ARTIFACT for other element types.
absl::StatusOr<message::Artifact> ToArtifact(std::string name, const at::Tensor& tensor);

}  // namespace onepiece::tensor
