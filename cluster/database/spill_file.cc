#include "cluster/database/spill_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/database/data_folder.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

constexpr std::size_t kAlign = 4096;
constexpr std::size_t kBounceBytes = std::size_t{1} << 20;
/// A table holds at most 256 names and types (message/message.h), far below this limit. The limit
/// only bounds the memory that a damaged file can make us allocate.
constexpr std::uint32_t kMaxHeaderBytes = std::uint32_t{16} << 20;
constexpr std::uint32_t kFormat = 1;
constexpr char kMagic[8] = {'O', 'P', 'S', 'P', 'I', 'L', 'L', '\n'};

static_assert(std::endian::native == std::endian::little, "the file is little-endian");
// The first 64 bytes of a file. The CRC-32C of each artifact follows, then a JobResult, then zeros.
// Later formats must keep magic, version and `checksum` where they are.
struct Preamble {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t cluster;
  std::uint8_t uid[16];
  std::uint64_t file_bytes;
  std::uint32_t artifacts;
  std::uint32_t result_bytes;    // Size of the JobResult.
  std::uint32_t table_checksum;  // CRC-32C of the header from byte 64 on.
  std::uint32_t checksum;        // CRC-32C of the bytes before it.
};
static_assert(sizeof(Preamble) == 64);

constexpr std::size_t Aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::uint32_t ChecksumOf(const Preamble& preamble) {
  return base::Crc32c(std::as_bytes(std::span(&preamble, 1)).first(offsetof(Preamble, checksum)));
}

v1::JobResult ResultOf(std::span<const StoredArtifact> artifacts) {
  v1::JobResult result;
  for (const StoredArtifact& artifact : artifacts) *result.add_artifacts() = artifact.info;
  return result;
}

std::size_t HeaderBytes(std::size_t artifacts, std::size_t result_bytes) {
  return Aligned(sizeof(Preamble) + artifacts * sizeof(std::uint32_t) + result_bytes);
}

absl::Status SpillDamaged(const std::string& path, std::string_view what) {
  return base::MakeError(absl::StatusCode::kDataLoss, "SPILL_DAMAGED",
                         absl::StrCat(path, ": ", std::string(what)));
}

struct File {
  explicit File(int number) : fd(number) {}
  ~File() {
    if (fd >= 0) close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int fd;
};

// Writes whole blocks from aligned memory, as O_DIRECT requires.
class BlockWriter {
 public:
  BlockWriter(int fd, const std::string& path)
      : fd_(fd), path_(path), bounce_(std::aligned_alloc(kAlign, kBounceBytes)) {}
  ~BlockWriter() { std::free(bounce_); }
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  /// Writes `bytes` at `at`, and zeros to the end of the last block. Sets `checksum` to the CRC-32C
  /// of `bytes`.
  absl::Status Write(std::size_t at, std::span<const std::byte> bytes, std::uint32_t& checksum) {
    if (bounce_ == nullptr) return DiskError(ENOMEM, "cannot write", path_);
    checksum = 0;
    while (!bytes.empty()) {
      const std::size_t part = std::min(bytes.size(), kBounceBytes);
      const std::span<std::byte> to(static_cast<std::byte*>(bounce_), part);
      const std::uint32_t crc = base::CopyWithCrc32c(bytes.first(part), to);
      checksum = base::CombineCrc32c(checksum, crc, part);
      std::memset(static_cast<std::byte*>(bounce_) + part, 0, Aligned(part) - part);
      ONEPIECE_RETURN_IF_ERROR(WriteBlocks(at, Aligned(part)));
      at += Aligned(part);
      bytes = bytes.subspan(part);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status WriteBlocks(std::size_t at, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const ssize_t wrote = pwrite(fd_, static_cast<const std::byte*>(bounce_) + done, count - done,
                                   static_cast<off_t>(at + done));
      if (wrote > 0) {
        done += static_cast<std::size_t>(wrote);
      } else if (wrote < 0 && errno == EINVAL && LeaveDirect()) {
        // The file system refuses O_DIRECT, or the rest of a short write is no whole block: go on
        // through the page cache.
        continue;
      } else if (wrote == 0 || errno != EINTR) {
        return DiskError(wrote == 0 ? ENOSPC : errno, "cannot write", path_);
      }
    }
    return absl::OkStatus();
  }
  [[nodiscard]] bool LeaveDirect() const {
    const int flags = fcntl(fd_, F_GETFL);
    return (flags & O_DIRECT) != 0 && fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0;
  }

  const int fd_;
  const std::string& path_;
  void* const bounce_;
};

absl::Status ReadAll(int fd, const std::string& path, std::span<std::byte> out,
                     std::size_t at = 0) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError(errno, "cannot read", path);
    if (got == 0) return SpillDamaged(path, "it is cut off");
    done += static_cast<std::size_t>(got);
  }
  return absl::OkStatus();
}

// Reads the table. `bytes` is the header from byte 64 on.
absl::Status ReadTable(const std::string& path, const Preamble& preamble,
                       std::span<const std::byte> bytes, SpillHeader& header) {
  const std::size_t checksum_bytes = std::size_t{preamble.artifacts} * sizeof(std::uint32_t);
  if (checksum_bytes > bytes.size() || preamble.result_bytes > bytes.size() - checksum_bytes)
    return SpillDamaged(path, "its table does not fit");
  header.checksums.resize(preamble.artifacts);
  std::ranges::copy(bytes.first(checksum_bytes),
                    std::as_writable_bytes(std::span(header.checksums)).begin());
  if (!header.result.ParseFromArray(bytes.data() + checksum_bytes,
                                    static_cast<int>(preamble.result_bytes)))
    return SpillDamaged(path, "its table cannot be read");
  if (header.result.artifacts_size() != static_cast<int>(preamble.artifacts))
    return SpillDamaged(path, "its table is of another size");
  std::uint64_t end = preamble.header_bytes;
  for (const v1::ResultArtifact& artifact : header.result.artifacts()) {
    if (artifact.size_bytes() < 0 ||
        static_cast<std::uint64_t>(artifact.size_bytes()) > preamble.file_bytes)
      return SpillDamaged(path, "the size of an artifact");
    end += Aligned(static_cast<std::size_t>(artifact.size_bytes()));
    // Here and not behind the loop, where a sum that has wrapped around could fit.
    if (end > preamble.file_bytes) return SpillDamaged(path, "its artifacts are longer than it");
  }
  if (end != preamble.file_bytes) return SpillDamaged(path, "its artifacts do not fill it");
  return absl::OkStatus();
}

absl::StatusOr<SpillHeader> ReadHeader(int fd, const std::string& path) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return DiskError(errno, "cannot look at", path);
  Preamble preamble{};
  ONEPIECE_RETURN_IF_ERROR(ReadAll(fd, path, std::as_writable_bytes(std::span(&preamble, 1))));
  if (std::memcmp(preamble.magic, kMagic, sizeof(kMagic)) != 0)
    return SpillDamaged(path, "not a spilled result");
  if (preamble.checksum != ChecksumOf(preamble)) return SpillDamaged(path, "its header's checksum");
  if (preamble.version > kFormat) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "NEWER_FORMAT",
        absl::StrCat(path, " has format ", preamble.version, ", this program reads ", kFormat,
                     ": run the newer program that wrote it"));
  }
  if (preamble.header_bytes < sizeof(Preamble) || preamble.header_bytes > kMaxHeaderBytes ||
      preamble.header_bytes % kAlign != 0)
    return SpillDamaged(path, "the size of its header");
  if (preamble.file_bytes != static_cast<std::uint64_t>(info.st_size))
    return SpillDamaged(path, "it is of another size");
  std::vector<std::byte> bytes(preamble.header_bytes);
  ONEPIECE_RETURN_IF_ERROR(ReadAll(fd, path, bytes));
  const auto table = std::span<const std::byte>(bytes).subspan(sizeof(Preamble));
  if (base::Crc32c(table) != preamble.table_checksum)
    return SpillDamaged(path, "its table's checksum");
  SpillHeader header;
  ONEPIECE_RETURN_IF_ERROR(ReadTable(path, preamble, table, header));
  header.owner.uid = base::Uid(std::to_array(preamble.uid));
  header.owner.cluster = preamble.cluster;
  header.header_bytes = preamble.header_bytes;
  header.file_bytes = static_cast<std::int64_t>(preamble.file_bytes);
  return header;
}

// Reads with pread and not through a mapping, where a bad sector would kill the process (SIGBUS).
absl::StatusOr<std::uint32_t> ChecksumOfFile(int fd, const std::string& path, std::size_t at,
                                             std::size_t bytes) {
  std::vector<std::byte> piece(std::min(bytes, kBounceBytes));
  std::uint32_t checksum = 0;
  while (bytes > 0) {
    const std::span<std::byte> part = std::span(piece).first(std::min(bytes, piece.size()));
    ONEPIECE_RETURN_IF_ERROR(ReadAll(fd, path, part, at));
    checksum = base::CombineCrc32c(checksum, base::Crc32c(part), part.size());
    at += part.size();
    bytes -= part.size();
  }
  return checksum;
}

absl::StatusOr<std::vector<StoredArtifact>> Map(const std::string& path, const SpillOwner& owner,
                                                bool check) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0 && errno == ENOENT) return absl::NotFoundError("no spilled result");
  if (file.fd < 0) return DiskError(errno, "cannot open", path);
  ONEPIECE_ASSIGN_OR_RETURN(SpillHeader header, ReadHeader(file.fd, path));
  if (header.owner.uid != owner.uid || header.owner.cluster != owner.cluster)
    return SpillDamaged(path, "it is another result's");
  const auto bytes = static_cast<std::size_t>(header.file_bytes);
  void* const memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd, 0);
  if (memory == MAP_FAILED) return DiskError(errno, "cannot map", path);
  const std::shared_ptr<const void> mapping(
      memory, [bytes](const void* address) { munmap(const_cast<void*>(address), bytes); });
  std::vector<StoredArtifact> artifacts;
  auto at = static_cast<std::size_t>(header.header_bytes);
  for (int i = 0; i < header.result.artifacts_size(); ++i) {
    StoredArtifact& artifact = artifacts.emplace_back();
    artifact.info = std::move(*header.result.mutable_artifacts(i));
    const auto size = static_cast<std::size_t>(artifact.info.size_bytes());
    artifact.data = message::Buffer(mapping, {static_cast<const std::byte*>(memory) + at, size});
    if (check) {
      ONEPIECE_ASSIGN_OR_RETURN(const std::uint32_t checksum,
                                ChecksumOfFile(file.fd, path, at, size));
      if (checksum != header.checksums[static_cast<std::size_t>(i)])
        return SpillDamaged(path, absl::StrCat("checksum of artifact ", artifact.info.artifact()));
    }
    at += Aligned(size);
  }
  return artifacts;
}

}  // namespace

std::uint64_t ClusterHash(const std::string& cluster_id) {
  const std::string hex = base::Sha256Hex(cluster_id);
  return std::strtoull(hex.substr(0, 16).c_str(), nullptr, 16);
}

std::int64_t SpillFileBytes(std::span<const StoredArtifact> artifacts) {
  std::size_t bytes = HeaderBytes(artifacts.size(), ResultOf(artifacts).ByteSizeLong());
  for (const StoredArtifact& artifact : artifacts) bytes += Aligned(artifact.data.size());
  return static_cast<std::int64_t>(bytes);
}

absl::Status WriteSpillFile(const std::string& path, const SpillOwner& owner,
                            std::span<const StoredArtifact> artifacts) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  int fd = open(path.c_str(), kFlags | O_DIRECT, 0600);
  // Some file systems refuse O_DIRECT here, others only at the first write (WriteBlocks).
  if (fd < 0 && errno == EINVAL) fd = open(path.c_str(), kFlags, 0600);
  if (fd < 0) return DiskError(errno, "cannot write", path);
  const File file(fd);
  const std::string result = base::CanonicalBytes(ResultOf(artifacts));
  if (HeaderBytes(artifacts.size(), result.size()) > kMaxHeaderBytes)
    return base::MakeError(absl::StatusCode::kResourceExhausted, "SPILL_FULL",
                           "its artifacts have too long names and types for a file");
  Preamble preamble{};
  std::memcpy(preamble.magic, kMagic, sizeof(kMagic));
  preamble.version = kFormat;
  preamble.header_bytes = static_cast<std::uint32_t>(HeaderBytes(artifacts.size(), result.size()));
  preamble.cluster = owner.cluster;
  std::ranges::copy(owner.uid.bytes(), preamble.uid);
  preamble.file_bytes = static_cast<std::uint64_t>(SpillFileBytes(artifacts));
  preamble.artifacts = static_cast<std::uint32_t>(artifacts.size());
  preamble.result_bytes = static_cast<std::uint32_t>(result.size());
  // Reserving the space first makes a full disk fail before anything is written, and lets the file
  // lie in one piece.
  if (fallocate(fd, 0, 0, static_cast<off_t>(preamble.file_bytes)) != 0 && errno != EOPNOTSUPP)
    return DiskError(errno, "cannot write", path);
  BlockWriter writer(fd, path);
  std::vector<std::uint32_t> checksums(artifacts.size());
  std::size_t at = preamble.header_bytes;
  for (std::size_t i = 0; i < artifacts.size(); ++i) {
    ONEPIECE_RETURN_IF_ERROR(writer.Write(at, artifacts[i].data.bytes(), checksums[i]));
    at += Aligned(artifacts[i].data.size());
  }
  // The header comes after the artifacts, because their checksums are known only once they are
  // written.
  std::vector<std::byte> header(preamble.header_bytes);
  const std::size_t checksum_bytes = checksums.size() * sizeof(std::uint32_t);
  std::ranges::copy(std::as_bytes(std::span(checksums)), header.begin() + sizeof(preamble));
  std::memcpy(header.data() + sizeof(preamble) + checksum_bytes, result.data(), result.size());
  preamble.table_checksum =
      base::Crc32c(std::span<const std::byte>(header).subspan(sizeof(preamble)));
  preamble.checksum = ChecksumOf(preamble);
  std::memcpy(header.data(), &preamble, sizeof(preamble));
  std::uint32_t unused = 0;
  ONEPIECE_RETURN_IF_ERROR(writer.Write(0, header, unused));
  if (fsync(fd) != 0) return DiskError(errno, "cannot synchronise", path);
  return absl::OkStatus();
}

absl::StatusOr<SpillHeader> ReadSpillHeader(const std::string& path) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0 && errno == ENOENT) return absl::NotFoundError("no spilled result");
  if (file.fd < 0) return DiskError(errno, "cannot open", path);
  return ReadHeader(file.fd, path);
}

absl::StatusOr<std::vector<StoredArtifact>> MapSpillFile(const std::string& path,
                                                         const SpillOwner& owner) {
  return Map(path, owner, false);
}

absl::StatusOr<std::vector<StoredArtifact>> CheckSpillFile(const std::string& path,
                                                           const SpillOwner& owner) {
  return Map(path, owner, true);
}

}  // namespace onepiece::database
