// Artifact: a named tensor, or named bytes, that stages hand on (docs/message-format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace onepiece::message {

/// Element types of artifacts. The numbers are on the wire: never reuse one.
enum class DType : std::uint8_t {
  kBytes = 1,
  kU8 = 2,
  kI32 = 3,
  kI64 = 4,
  kF16 = 5,
  kBF16 = 6,
  kF32 = 7
};

/// The size of one element in bytes; 1 for kBytes.
std::size_t ElementBytes(DType dtype);
/// "F32", "BF16", … as safetensors spells them; "BYTES" for kBytes.
std::string_view DTypeName(DType dtype);

/// Memory for receiving a message: aligned to 64 bytes and not initialised.
std::shared_ptr<std::byte[]> AllocateAligned(std::size_t bytes);

/// Immutable bytes with shared ownership. A view into a received message keeps that message alive.
/// A copy shares the bytes.
///
/// Threading: thread-safe to read.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<const void> owner, std::span<const std::byte> bytes)
      : owner_(std::move(owner)), bytes_(bytes) {}
  /// Takes over `bytes`.
  static Buffer FromString(std::string bytes);

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  /// A part of the bytes, which keeps the whole alive. REQUIRES: offset + length <= size().
  [[nodiscard]] Buffer Slice(std::size_t offset, std::size_t length) const {
    return {owner_, bytes_.subspan(offset, length)};
  }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

/// A named tensor (row-major, contiguous) or a named run of bytes.
///
/// Invariants: data.size() == product(shape) × ElementBytes(dtype). For kBytes the shape is {size}.
struct Artifact {
  std::string name;  ///< Unique in its bundle, 1 to 64 bytes.
  DType dtype = DType::kBytes;
  std::vector<std::int64_t> shape;
  std::string media_type;  ///< MIME type of kBytes artifacts ("video/mp4"); empty for tensors.
  Buffer data;             ///< 64-byte aligned when it came out of a message.
  /// The 32 raw bytes of the SHA-256 of the data, from the stage that made it; empty when nobody
  /// has computed it. Messages carry it and do not check it.
  std::string sha256;
  /// The CRC-32C of the data as the last sender computed it; not set when the artifact did not come
  /// in a message. Encode computes its own.
  std::optional<std::uint32_t> crc32c;
};

/// Makes a kBytes artifact.
Artifact BytesArtifact(std::string name, std::string media_type, std::string bytes);

/// The artifact with that name, or nullptr.
const Artifact* FindArtifact(std::span<const Artifact> artifacts, std::string_view name);

/// A job's parameters after validation against its application's schema, with defaults filled in.
using ParameterValue = std::variant<bool, std::int64_t, double, std::string>;
using Parameters = std::map<std::string, ParameterValue, std::less<>>;

}  // namespace onepiece::message
