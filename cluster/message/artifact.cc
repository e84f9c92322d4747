#include "cluster/message/artifact.h"

#include <utility>

#include "cluster/base/check.h"

namespace onepiece::message {

std::size_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kBytes:
    case DType::kU8:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
      return 8;
  }
  ONEPIECE_CHECK(false);
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kBytes:
      return "BYTES";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kF32:
      return "F32";
  }
  ONEPIECE_CHECK(false);
}

Buffer Buffer::FromString(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  const auto view = std::as_bytes(std::span(owner->data(), owner->size()));
  return Buffer(std::move(owner), view);
}

Artifact BytesArtifact(std::string name, std::string media_type, std::string bytes) {
  Artifact artifact;
  artifact.name = std::move(name);
  artifact.media_type = std::move(media_type);
  artifact.shape = {static_cast<std::int64_t>(bytes.size())};
  artifact.data = Buffer::FromString(std::move(bytes));
  return artifact;
}

const Artifact* FindArtifact(std::span<const Artifact> artifacts, std::string_view name) {
  for (const auto& artifact : artifacts) {
    if (artifact.name == name) return &artifact;
  }
  return nullptr;
}

}  // namespace onepiece::message
