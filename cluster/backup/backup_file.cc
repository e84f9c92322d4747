#include "cluster/backup/backup_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "cluster/base/folder.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"

namespace onepiece::backup {
namespace {

constexpr std::string_view kMagic = "onepiece-backup\n";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kHeadBytes = kMagic.size() + 2 * sizeof(std::uint32_t);
constexpr std::size_t kDigestBytes = 32;

void AppendU32(std::uint32_t value, std::string& bytes) {
  for (int shift = 0; shift < 32; shift += 8)
    bytes.push_back(static_cast<char>(value >> shift & 0xff));
}

std::uint32_t ReadU32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::string Digest(std::string_view bytes) {
  base::Sha256 sha;
  sha.Update(bytes);
  return sha.Finish();
}

absl::Status Damaged(std::string_view what) {
  return base::MakeError(
      absl::StatusCode::kDataLoss, "BACKUP_DAMAGED",
      absl::StrCat("the backup is damaged (", std::string(what), "): use another one"));
}

absl::Status CannotWrite(const std::string& path) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                         absl::StrCat("cannot write ", path, ": ", std::strerror(errno)),
                         {{"path", path}});
}

// A file that is being written. It goes away again unless it gets its name.
class PartFile {
 public:
  explicit PartFile(const std::string& path) : path_(path + ".part") {
    unlink(path_.c_str());  // What an earlier attempt left may have other permissions.
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  }
  ~PartFile() {
    if (fd_ < 0) return;
    close(fd_);
    if (!renamed_) unlink(path_.c_str());
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  absl::Status Append(std::string_view chunk) {
    if (fd_ < 0) return CannotWrite(path_);
    bytes_ += chunk.size();
    if (bytes_ > kMaxFileBytes) return Damaged("it is larger than any state");
    while (!chunk.empty()) {
      const ssize_t written = write(fd_, chunk.data(), chunk.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return CannotWrite(path_);
      chunk.remove_prefix(static_cast<std::size_t>(written));
    }
    return absl::OkStatus();
  }
  absl::Status Sync() const {
    return fd_ >= 0 && fsync(fd_) == 0 ? absl::OkStatus() : CannotWrite(path_);
  }
  absl::Status Rename(const std::string& path) {
    if (std::rename(path_.c_str(), path.c_str()) != 0) return CannotWrite(path);
    renamed_ = true;
    // The new name survives a power cut only when the folder has been synced too.
    return base::SyncFolderOf(path) ? absl::OkStatus() : CannotWrite(path);
  }

 private:
  const std::string path_;
  int fd_ = -1;
  bool renamed_ = false;
  std::size_t bytes_ = 0;
};

absl::StatusOr<std::string> ReadBytes(const std::string& path) {
  struct stat about {};
  if (stat(path.c_str(), &about) != 0 && errno == ENOENT) {
    return base::MakeError(absl::StatusCode::kNotFound, "NO_FILE",
                           absl::StrCat("there is no file ", path), {{"path", path}});
  }
  std::ifstream file(path, std::ios::binary);
  if (!file || !S_ISREG(about.st_mode)) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_READ",
                           absl::StrCat("cannot read ", path), {{"path", path}});
  }
  if (static_cast<std::uintmax_t>(about.st_size) > kMaxFileBytes)
    return base::Annotate(Damaged("it is larger than any state"), path);
  return std::string{std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string Encode(const Backup& backup) {
  const std::string header = backup.header.SerializeAsString();
  std::string bytes(kMagic);
  bytes.reserve(kHeadBytes + header.size() + backup.state.size() + kDigestBytes);
  AppendU32(kFormat, bytes);
  AppendU32(static_cast<std::uint32_t>(header.size()), bytes);
  bytes += header;
  bytes += backup.state;
  bytes += Digest(bytes);
  return bytes;
}

absl::StatusOr<Backup> Decode(std::string_view bytes) {
  if (kMagic.starts_with(bytes)) return Damaged("it is cut short");
  if (!bytes.starts_with(kMagic)) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_A_BACKUP",
                           "it does not begin as a backup of a NodeManager does");
  }
  if (bytes.size() < kHeadBytes + kDigestBytes) return Damaged("it is cut short");
  if (const std::uint32_t format = ReadU32(bytes.substr(kMagic.size())); format > kFormat) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NEWER_FORMAT",
                           absl::StrCat("a backup of format ", format, ", this program reads ",
                                        kFormat, ": use the newer program that wrote it"));
  }
  const std::string_view body = bytes.substr(0, bytes.size() - kDigestBytes);
  if (Digest(body) != bytes.substr(body.size())) return Damaged("its SHA-256 is another");
  const std::uint32_t length = ReadU32(bytes.substr(kMagic.size() + sizeof(std::uint32_t)));
  Backup backup;
  if (length > body.size() - kHeadBytes ||
      !backup.header.ParseFromArray(body.data() + kHeadBytes, static_cast<int>(length)))
    return Damaged("its header makes no sense");
  backup.state = body.substr(kHeadBytes + length);
  return backup;
}

absl::StatusOr<Backup> ReadFile(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(path));
  absl::StatusOr<Backup> backup = Decode(bytes);
  if (!backup.ok()) return base::Annotate(backup.status(), path);
  return backup;
}

absl::StatusOr<Written> WriteFile(const std::string& path,
                                  absl::FunctionRef<absl::Status(Sink sink)> receive) {
  PartFile part(path);
  ONEPIECE_RETURN_IF_ERROR(part.Append(""));
  ONEPIECE_RETURN_IF_ERROR(receive([&](std::string_view chunk) { return part.Append(chunk); }));
  ONEPIECE_RETURN_IF_ERROR(part.Sync());
  ONEPIECE_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(part.path()));
  absl::StatusOr<Backup> backup = Decode(bytes);
  if (!backup.ok()) return base::Annotate(backup.status(), "what was written");
  ONEPIECE_RETURN_IF_ERROR(part.Rename(path));
  return Written{.path = path,
                 .header = std::move(backup->header),
                 .bytes = bytes.size(),
                 .sha256 = base::Sha256Hex(bytes)};
}

}  // namespace onepiece::backup
