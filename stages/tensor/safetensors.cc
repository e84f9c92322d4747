#include "stages/tensor/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/tensor/truncation_guard.h"

namespace onepiece::tensor {
namespace {

struct TypeRow {
  ElementType type;
  std::string_view name;
  std::int64_t bytes;
};
// The rows are in the order of ElementType, which is the index (Row).
constexpr std::array<TypeRow, 15> kTypes{{{ElementType::kBool, "BOOL", 1},
                                          {ElementType::kU8, "U8", 1},
                                          {ElementType::kI8, "I8", 1},
                                          {ElementType::kF8E4M3, "F8_E4M3", 1},
                                          {ElementType::kF8E5M2, "F8_E5M2", 1},
                                          {ElementType::kI16, "I16", 2},
                                          {ElementType::kU16, "U16", 2},
                                          {ElementType::kF16, "F16", 2},
                                          {ElementType::kBF16, "BF16", 2},
                                          {ElementType::kI32, "I32", 4},
                                          {ElementType::kU32, "U32", 4},
                                          {ElementType::kF32, "F32", 4},
                                          {ElementType::kI64, "I64", 8},
                                          {ElementType::kU64, "U64", 8},
                                          {ElementType::kF64, "F64", 8}}};

const TypeRow& Row(ElementType type) { return kTypes[static_cast<std::size_t>(type)]; }

absl::Status Bad(std::string_view label, std::string_view what, std::string_view tensor = {}) {
  std::map<std::string, std::string> metadata{{"file", std::string(label)}};
  std::string message = std::string(label) + ": ";
  if (!tensor.empty()) {
    // A hostile name may be as long as the header.
    const std::string name(tensor.substr(0, 200));
    metadata["tensor"] = name;
    message += "tensor \"" + name + "\": ";
  }
  message += what;
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SAFETENSORS", message,
                         std::move(metadata));
}

/// Receives the header's JSON as events. So it sees duplicate keys and builds nothing deeper than
/// {"name": {"shape": [..]}}.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(SafetensorsIndex& index) : index_(index) {}

  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] const std::string& tensor() const { return entry_.name; }

  bool null() override { return Fail("null where a value belongs"); }
  bool boolean(bool) override { return Fail("true or false where a value belongs"); }
  bool number_integer(number_integer_t) override { return Fail("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Fail("a number that is not an integer");
  }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (entry_.shape.size() == kMaxDimensions) return Fail("too many dimensions");
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return Fail("an extent is too large");
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_seen_ == 2) return Fail("data_offsets must be two numbers");
      offsets_[offsets_seen_++] = value;
      return true;
    }
    return Fail("a number where none belongs");
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      index_.metadata[key_] = value;
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return Fail("a string where none belongs");
    for (const TypeRow& row : kTypes) {
      if (row.name == value) {
        entry_.type = row.type;
        return true;
      }
    }
    return Fail("unknown dtype \"" + value.substr(0, 40) + "\"");
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
      return true;
    }
    if (place_ != Place::kRoot) return Fail("an object where none belongs");
    if (key_ == "__metadata__") {
      place_ = Place::kMetadata;
      return true;
    }
    place_ = Place::kTensor;
    entry_ = TensorEntry{};
    entry_.name = key_;
    fields_.clear();
    offsets_seen_ = 0;
    return true;
  }

  bool key(string_t& value) override {
    key_ = value;
    switch (place_) {
      case Place::kRoot:
        // An error between two tensors must not name the one before.
        entry_.name.clear();
        return names_.insert(value).second ||
               Fail("duplicate name \"" + value.substr(0, 200) + "\"");
      case Place::kMetadata:
        return !index_.metadata.contains(value) || Fail("duplicate key in __metadata__");
      case Place::kTensor:
        if (value != "dtype" && value != "shape" && value != "data_offsets") {
          return Fail("unknown field \"" + value.substr(0, 40) + "\"");
        }
        return fields_.insert(value).second || Fail("duplicate field \"" + value + "\"");
      default:
        return Fail("a key where none belongs");
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (fields_.size() != 3) return Fail("dtype, shape and data_offsets are all needed");
      if (!Finish()) return false;
    }
    place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return Fail("an array where none belongs");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_seen_ != 2)
      return Fail("data_offsets must be two numbers");
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return Fail("the header is not valid JSON near byte " + std::to_string(position));
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool Fail(std::string what) {
    error_ = std::move(what);
    return false;
  }

  /// Checks what can be checked of one tensor alone, and keeps the tensor.
  bool Finish() {
    if (offsets_[1] < offsets_[0]) return Fail("data_offsets run backwards");
    std::int64_t bytes = ElementTypeBytes(entry_.type);
    // A zero extent makes the product zero. It must not hide an overflow of the other extents.
    bool empty = false;
    for (const std::int64_t extent : entry_.shape) {
      empty = empty || extent == 0;
      if (extent != 0 && __builtin_mul_overflow(bytes, extent, &bytes))
        return Fail("the shape overflows");
    }
    if (empty) bytes = 0;
    entry_.offset = offsets_[0];
    entry_.bytes = offsets_[1] - offsets_[0];
    if (entry_.bytes != static_cast<std::uint64_t>(bytes)) {
      return Fail("data_offsets span " + std::to_string(entry_.bytes) +
                  " bytes, shape and dtype need " + std::to_string(bytes));
    }
    index_.tensors.push_back(entry_);
    return true;
  }

  SafetensorsIndex& index_;
  Place place_ = Place::kStart;
  std::string key_, error_;
  TensorEntry entry_;
  std::set<std::string> names_, fields_;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t offsets_seen_ = 0;
};

/// The files that the process has mapped.
struct OpenFiles {
  base::Mutex mutex;
  std::set<const SafetensorsFile*> files ABSL_GUARDED_BY(mutex);

  static OpenFiles& OfProcess() {
    static auto* const open = new OpenFiles;  // Never destroyed: models may outlive main.
    return *open;
  }
};

}  // namespace

std::string_view ElementTypeName(ElementType type) { return Row(type).name; }
std::int64_t ElementTypeBytes(ElementType type) { return Row(type).bytes; }

const TensorEntry* SafetensorsIndex::Find(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

absl::StatusOr<SafetensorsIndex> ParseSafetensors(std::span<const std::byte> file,
                                                  std::string_view label) {
  std::uint64_t header_bytes = 0;
  if (file.size() < sizeof header_bytes)
    return Bad(label, "shorter than the 8 bytes of the header's length");
  for (std::size_t i = 0; i < sizeof header_bytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (header_bytes > kMaxHeaderBytes) return Bad(label, "the header claims more than 100 MB");
  if (header_bytes > file.size() - sizeof header_bytes)
    return Bad(label, "the header runs past the end of the file");
  const auto header = file.subspan(sizeof header_bytes, header_bytes);
  const char* text = reinterpret_cast<const char*>(header.data());
  if (header.empty() || text[0] != '{') return Bad(label, "the header does not begin with '{'");

  SafetensorsIndex index;
  index.data_offset = sizeof header_bytes + header_bytes;
  HeaderHandler handler(index);
  if (!nlohmann::json::sax_parse(text, text + header.size(), &handler)) {
    return Bad(label, handler.error(), handler.tensor());
  }
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              // An empty tensor comes before the one that begins at its offset. After it, it would
              // look like an overlap.
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  const std::uint64_t data_bytes = file.size() - index.data_offset;
  std::uint64_t end = 0;
  for (const TensorEntry& entry : index.tensors) {
    if (entry.offset < end) return Bad(label, "its data overlap another tensor's", entry.name);
    // The difference cannot wrap. The sum of offset and bytes could, in a hostile file.
    if (entry.bytes > data_bytes || entry.offset > data_bytes - entry.bytes) {
      return Bad(label, "its data run past the end of the file", entry.name);
    }
    if (entry.offset > end) return Bad(label, "there is a hole before its data", entry.name);
    end = entry.offset + entry.bytes;
  }
  if (end != data_bytes) {
    return Bad(label, std::to_string(data_bytes - end) + " bytes at the end belong to no tensor");
  }
  return index;
}

absl::StatusOr<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(
    const std::string& path) {
  // A link would let whoever may write into a model's folder have any file of this user read.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ELOOP) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "FILE_NOT_READABLE",
                           path + " is a symbolic link: put the file itself there",
                           {{"file", path}});
  }
  if (fd < 0) {
    const int error = errno;
    const auto code = error == ENOENT || error == ENOTDIR ? absl::StatusCode::kNotFound
                      : error == EACCES                   ? absl::StatusCode::kPermissionDenied
                                                          : absl::StatusCode::kFailedPrecondition;
    return base::MakeError(code, "FILE_NOT_READABLE", path + ": " + std::strerror(error),
                           {{"file", path}});
  }
  struct stat info {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  void* address = MAP_FAILED;
  if (regular && info.st_size > 0) {
    address = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  if (!regular || info.st_size == 0)
    return Bad(path, regular ? "the file is empty" : "not a regular file");
  if (address == MAP_FAILED) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "MAP_FAILED",
                           path + ": cannot be mapped", {{"file", path}});
  }
  const std::span<const std::byte> mapping(static_cast<const std::byte*>(address),
                                           static_cast<std::size_t>(info.st_size));
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile(path, mapping, IdentityOf(info)));
  ONEPIECE_ASSIGN_OR_RETURN(file->index_, ParseSafetensors(mapping, path));
  return file;
}

SafetensorsFile::SafetensorsFile(std::string path, std::span<const std::byte> mapping,
                                 const Identity& identity)
    : path_(std::move(path)),
      mapping_(mapping),
      identity_(identity),
      guard_(std::make_unique<const TruncationGuard>(mapping)) {
  OpenFiles& open = OpenFiles::OfProcess();
  const base::MutexLock lock(open.mutex);
  open.files.insert(this);
}

SafetensorsFile::~SafetensorsFile() {
  guard_.reset();  // Before another mapping may have the same addresses.
  {
    OpenFiles& open = OpenFiles::OfProcess();
    const base::MutexLock lock(open.mutex);
    open.files.erase(this);
  }
  ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
}

SafetensorsFile::Identity SafetensorsFile::IdentityOf(const struct stat& info) {
  return {static_cast<std::int64_t>(info.st_dev), static_cast<std::int64_t>(info.st_ino),
          static_cast<std::int64_t>(info.st_size),
          std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

absl::Status SafetensorsFile::CheckUnchanged() const {
  struct stat info {};
  const bool there = ::stat(path_.c_str(), &info) == 0;
  const Identity now = there ? IdentityOf(info) : identity_;
  // Another file of this name leaves the mapped one as it is.
  const bool same_file = now[0] == identity_[0] && now[1] == identity_[1];
  if (!guard_->damaged() && (!same_file || now == identity_)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kAborted, "MODEL_CHANGED",
                         path_ +
                             " was overwritten or truncated while it was served; put new models "
                             "into new files, and load this one again",
                         {{"file", path_}});
}

absl::Status SafetensorsFile::CheckFolder(const std::string& dir) {
  OpenFiles& open = OpenFiles::OfProcess();
  const base::MutexLock lock(open.mutex);
  for (const SafetensorsFile* file : open.files) {
    if (file->path_.starts_with(dir + "/")) ONEPIECE_RETURN_IF_ERROR(file->CheckUnchanged());
  }
  return absl::OkStatus();
}

std::span<const std::byte> SafetensorsFile::Data(const TensorEntry& entry) const {
  return mapping_.subspan(index_.data_offset + entry.offset, entry.bytes);
}

void SafetensorsFile::Forget(const TensorEntry& entry) const {
  // Drops whole pages, also those at the ends. Other data on these pages is read again when it is
  // needed.
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = (index_.data_offset + entry.offset) / page * page;
  const std::uint64_t end = index_.data_offset + entry.offset + entry.bytes;
  ::madvise(const_cast<std::byte*>(mapping_.data()) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace onepiece::tensor
