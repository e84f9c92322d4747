#include "cluster/message/artifact.h"

#include <sys/mman.h>

#include <new>

#include "cluster/base/check.h"
#include "cluster/message/message.h"

namespace onepiece::message {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
constexpr std::size_t kLargeBytes = 2 * kHugePageBytes;

}  // namespace

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

std::shared_ptr<std::byte[]> AllocateAligned(std::size_t bytes) {
  const std::align_val_t align{bytes < kLargeBytes ? kArtifactAlignBytes : kHugePageBytes};
  std::shared_ptr<std::byte[]> memory(static_cast<std::byte*>(::operator new(bytes, align)),
                                      [align](std::byte* old) { ::operator delete(old, align); });
  // Asks for huge pages, because filling fresh pages of 4 KiB takes longer than the copy. The
  // system may refuse.
  if (bytes >= kLargeBytes)
    (void)madvise(memory.get(), bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  return memory;
}

Buffer Buffer::FromString(std::string bytes) {
  // The string moves before its bytes are taken. A short string keeps them inside the object, so an
  // earlier span would dangle.
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  return {owner, std::as_bytes(std::span(*owner))};
}

Artifact BytesArtifact(std::string name, std::string media_type, std::string bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  return {std::move(name),
          DType::kBytes,
          {size},
          std::move(media_type),
          Buffer::FromString(std::move(bytes))};
}

const Artifact* FindArtifact(std::span<const Artifact> artifacts, std::string_view name) {
  for (const Artifact& artifact : artifacts) {
    if (artifact.name == name) return &artifact;
  }
  return nullptr;
}

}  // namespace onepiece::message
