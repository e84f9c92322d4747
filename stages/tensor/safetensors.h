// Reads safetensors files: maps them into memory and checks the whole header before it uses
// anything.
//
// The parser does not use LibTorch, so that it can be fuzzed alone. stages/tensor/torch_convert.h
// makes tensors of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct stat;

namespace onepiece::tensor {

enum class ElementType {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64
};

/// Returns the type's name as the file spells it: "F32", "BF16", …
std::string_view ElementTypeName(ElementType type);
/// Returns the bytes of one element.
std::int64_t ElementTypeBytes(ElementType type);

struct TensorEntry {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t>
      shape;                 ///< Empty for a scalar. Every extent >= 0, the product fits 63 bits.
  std::uint64_t offset = 0;  ///< From the start of the data, not of the file.
  std::uint64_t bytes = 0;   ///< == product(shape) × ElementTypeBytes(type).
};

/// The content of a header.
///
/// Invariants: after ParseSafetensors the entries, in this order, fill the data exactly.
struct SafetensorsIndex {
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  ///< Where the data begins in the file.

  /// Returns nullptr if no tensor has that name.
  [[nodiscard]] const TensorEntry* Find(std::string_view name) const;
};

class TruncationGuard;

/// The largest header that the parser reads, and the most dimensions of a tensor.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::size_t kMaxDimensions = 16;

/// Checks and reads the header of a whole file held in memory. `label` names the file in errors.
///
/// Errors: INVALID_ARGUMENT BAD_SAFETENSORS, with metadata "file" and, if one tensor is at fault,
/// "tensor".
absl::StatusOr<SafetensorsIndex> ParseSafetensors(std::span<const std::byte> file,
                                                  std::string_view label);

/// A mapped file. The bytes live as long as this object. A file that is replaced (renamed over)
/// stays what it was. One that is overwritten or truncated in place changes under its readers, who
/// read the new values or zeros; CheckUnchanged tells them.
///
/// Threading: immutable; may be used from any thread.
class SafetensorsFile {
 public:
  /// Maps and checks `path`.
  ///
  /// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT BAD_SAFETENSORS.
  static absl::StatusOr<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const SafetensorsIndex& index() const { return index_; }
  /// REQUIRES: `entry` is one of index().tensors.
  [[nodiscard]] std::span<const std::byte> Data(const TensorEntry& entry) const;
  /// Checks that the file has been neither truncated nor overwritten since Open. It looks at the
  /// file's size and time, and at what reading has met; it reads no data. Do this after computing
  /// with the data, before the result counts.
  ///
  /// Errors: ABORTED MODEL_CHANGED.
  [[nodiscard]] absl::Status CheckUnchanged() const;
  /// CheckUnchanged for all files below the folder `dir` that the process has mapped.
  static absl::Status CheckFolder(const std::string& dir);
  /// Gives back the memory that reading the entry took. The next read takes it from the file again.
  void Forget(const TensorEntry& entry) const;

 private:
  /// What a file is: device, inode, size, and the time of its last change in nanoseconds.
  using Identity = std::array<std::int64_t, 4>;
  SafetensorsFile(std::string path, std::span<const std::byte> mapping, const Identity& identity);
  static Identity IdentityOf(const struct stat& info);

  const std::string path_;
  const std::span<const std::byte> mapping_;
  const Identity identity_;
  std::unique_ptr<const TruncationGuard> guard_;
  SafetensorsIndex index_;  // Constant after Open.
};

}  // namespace onepiece::tensor
