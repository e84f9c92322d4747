// Gives any bytes to the reader of spilled results, as they come and with magic, sizes and
// checksums corrected, so that the checks behind those run too. What it accepts lies inside the
// file.
//
// The input is a header: it is filled up with zeros to whole blocks. The last two bytes say how
// many blocks of artifacts follow, which is a hole in the file, so that a file may be very long.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/database/spill_file.h"
#include "google/protobuf/stubs/logging.h"

namespace onepiece::database {
namespace {

constexpr std::size_t kBlock = 4096;
constexpr std::size_t kPreambleBytes = 64;
/// A longer file is not mapped whole on every machine.
constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 46;

/// Puts a number into the preamble (docs/database.md has the layout).
template <typename Number>
void Put(std::vector<std::byte>& bytes, std::size_t at, Number value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

/// A file in memory.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)) { ONEPIECE_CHECK(fd_ >= 0); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void Set(std::span<const std::byte> bytes, std::uint64_t length) {
    ONEPIECE_CHECK(ftruncate(fd_, 0) == 0);
    ONEPIECE_CHECK(pwrite(fd_, bytes.data(), bytes.size(), 0) ==
                   static_cast<ssize_t>(bytes.size()));
    ONEPIECE_CHECK(ftruncate(fd_, static_cast<off_t>(length)) == 0);
  }

 private:
  const int fd_;
};

void Read(const std::string& path, std::uint64_t length) {
  const auto header = ReadSpillHeader(path);
  if (!header.ok()) return;
  ONEPIECE_CHECK(static_cast<std::uint64_t>(header->file_bytes) == length);
  auto end = static_cast<std::uint64_t>(header->header_bytes);
  for (const v1::ResultArtifact& artifact : header->result.artifacts()) {
    const auto size = static_cast<std::uint64_t>(artifact.size_bytes());
    ONEPIECE_CHECK(end <= length && size <= length - end);
    end += (size + kBlock - 1) / kBlock * kBlock;
  }
  ONEPIECE_CHECK(end == length);
  const auto mapped = MapSpillFile(path, header->owner);
  if (!mapped.ok() || length > (std::uint64_t{1} << 20)) return;
  const auto checked = CheckSpillFile(path, header->owner);
  if (!checked.ok()) return;
  ONEPIECE_CHECK(checked->size() == mapped->size());
  for (std::size_t i = 0; i < checked->size(); ++i)
    ONEPIECE_CHECK((*checked)[i].data.text() == (*mapped)[i].data.text());
}

}  // namespace
}  // namespace onepiece::database

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::database;
  static const google::protobuf::LogSilencer quiet;  // It logs every text that is not UTF-8.
  static MemoryFile file;
  const auto input = std::as_bytes(std::span(data, size));
  file.Set(input, size);
  Read(file.path(), size);
  if (size < kPreambleBytes + 2) return 0;
  std::vector<std::byte> bytes(input.begin(), input.end() - 2);
  bytes.resize((bytes.size() + kBlock - 1) / kBlock * kBlock);
  // A small number of blocks, or a power of two, or next to one.
  const unsigned exponent = data[size - 1] % 64, more = data[size - 2];
  const std::uint64_t hole = (exponent < 16 ? 0 : std::uint64_t{1} << exponent) + more * kBlock;
  const std::uint64_t length = std::min(bytes.size() + hole / kBlock * kBlock, kMaxFileBytes);
  std::memcpy(bytes.data(), "OPSPILL\n", 8);
  Put(bytes, 8, std::uint32_t{1});
  Put(bytes, 12, static_cast<std::uint32_t>(bytes.size()));
  Put(bytes, 40, length);
  Put(bytes, 56, onepiece::base::Crc32c(std::span(bytes).subspan(kPreambleBytes)));
  Put(bytes, 60, onepiece::base::Crc32c(std::span(bytes).first(60)));
  file.Set(bytes, length);
  Read(file.path(), length);
  return 0;
}
