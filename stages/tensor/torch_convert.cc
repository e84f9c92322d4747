#include "stages/tensor/torch_convert.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "cluster/base/status.h"
#include "stages/tensor/compute.h"

namespace onepiece::tensor {
namespace {

std::optional<at::ScalarType> ScalarTypeOf(ElementType type) {
  switch (type) {
    case ElementType::kBool:
      return at::kBool;
    case ElementType::kU8:
      return at::kByte;
    case ElementType::kI8:
      return at::kChar;
    case ElementType::kI16:
      return at::kShort;
    case ElementType::kF16:
      return at::kHalf;
    case ElementType::kBF16:
      return at::kBFloat16;
    case ElementType::kI32:
      return at::kInt;
    case ElementType::kF32:
      return at::kFloat;
    case ElementType::kI64:
      return at::kLong;
    case ElementType::kF64:
      return at::kDouble;
    case ElementType::kF8E4M3:
    case ElementType::kF8E5M2:
    case ElementType::kU16:
    case ElementType::kU32:
    case ElementType::kU64:
      return std::nullopt;
  }
  return std::nullopt;
}

struct ArtifactType {
  message::DType dtype;
  at::ScalarType scalar;
};
// Both kU8 and kBytes are kByte. kU8 stands first, because ToArtifact takes the first row that
// fits.
constexpr ArtifactType kArtifactTypes[] = {
    {message::DType::kU8, at::kByte},       {message::DType::kI32, at::kInt},
    {message::DType::kI64, at::kLong},      {message::DType::kF16, at::kHalf},
    {message::DType::kBF16, at::kBFloat16}, {message::DType::kF32, at::kFloat},
    {message::DType::kBytes, at::kByte}};

/// Returns a tensor over bytes that `owner` keeps alive, or a copy if they are misaligned for their
/// type.
at::Tensor Wrap(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                at::IntArrayRef shape, at::ScalarType type) {
  if (bytes.empty()) return at::empty(shape, type);
  // LibTorch has no const tensors. The cast relies on the rule that callers only read these.
  void* data = const_cast<std::byte*>(bytes.data());
  if (reinterpret_cast<std::uintptr_t>(data) % at::elementSize(type) == 0) {
    return at::from_blob(
        data, shape, [owner = std::move(owner)](void*) {}, at::TensorOptions(type));
  }
  at::Tensor copy = at::empty(shape, type);
  std::memcpy(copy.data_ptr(), data, bytes.size());
  return copy;
}

absl::Status BadArtifact(const std::string& name, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_ARTIFACT",
                         "artifact \"" + name + "\": " + what, {{"artifact", name}});
}

}  // namespace

absl::StatusOr<at::Tensor> ViewTensor(std::shared_ptr<const SafetensorsFile> file,
                                      const TensorEntry& entry) {
  const auto type = ScalarTypeOf(entry.type);
  if (!type) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SAFETENSORS",
                           file->path() + ": tensor \"" + entry.name + "\": dtype " +
                               std::string(ElementTypeName(entry.type)) + " is not supported",
                           {{"file", file->path()}, {"tensor", entry.name}});
  }
  return Guarded([&]() -> absl::StatusOr<at::Tensor> {
    return Wrap(file->Data(entry), file, entry.shape, *type);
  });
}

absl::StatusOr<at::Tensor> LoadTensor(std::shared_ptr<const SafetensorsFile> file,
                                      const TensorEntry& entry, at::ScalarType type,
                                      at::Device device) {
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor view, ViewTensor(std::move(file), entry));
  return Guarded([&]() -> absl::StatusOr<at::Tensor> { return view.to(device, type); });
}

absl::StatusOr<at::Tensor> ToTensor(const message::Artifact& artifact) {
  for (const ArtifactType& row : kArtifactTypes) {
    if (row.dtype != artifact.dtype) continue;
    std::int64_t bytes = static_cast<std::int64_t>(at::elementSize(row.scalar));
    for (const std::int64_t extent : artifact.shape) {
      if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
        return BadArtifact(artifact.name, "its shape is not possible");
      }
    }
    if (static_cast<std::uint64_t>(bytes) != artifact.data.size()) {
      return BadArtifact(artifact.name, "its shape needs " + std::to_string(bytes) +
                                            " bytes, it has " +
                                            std::to_string(artifact.data.size()));
    }
    return Guarded([&]() -> absl::StatusOr<at::Tensor> {
      // A copy of the Buffer shares the bytes and keeps them alive.
      auto owner = std::make_shared<const message::Buffer>(artifact.data);
      return Wrap(artifact.data.bytes(), std::move(owner), artifact.shape, row.scalar);
    });
  }
  return BadArtifact(artifact.name, "its element type is not known");
}

absl::StatusOr<message::Artifact> ToArtifact(std::string name, const at::Tensor& tensor) {
  for (const ArtifactType& row : kArtifactTypes) {
    if (row.scalar != tensor.scalar_type()) continue;
    return Guarded([&]() -> absl::StatusOr<message::Artifact> {
      auto owner = std::make_shared<const at::Tensor>(tensor.to(at::kCPU).contiguous());
      message::Artifact artifact;
      artifact.name = std::move(name);
      artifact.dtype = row.dtype;
      artifact.shape = owner->sizes().vec();
      const std::span<const std::byte> bytes(static_cast<const std::byte*>(owner->data_ptr()),
                                             owner->nbytes());
      artifact.data = message::Buffer(std::move(owner), bytes);
      return artifact;
    });
  }
  return BadArtifact(
      name, "artifacts cannot hold tensors of " + std::string(at::toString(tensor.scalar_type())));
}

}  // namespace onepiece::tensor
