#include "cluster/identity/secret_files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "cluster/base/folder.h"
#include "cluster/base/status.h"

namespace onepiece::identity {
namespace {

constexpr mode_t kOthersMayAnything = 077, kOthersMayWrite = 022;

/// Closes a file at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool ok() const { return fd_ >= 0; }

 private:
  const int fd_;
};

std::string Cause() { return std::generic_category().message(errno); }

absl::Status Refuse(std::string_view reason, const std::string& path, const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message, {{"path", path}});
}

absl::Status NoFile(const std::string& path, std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kNotFound, reason, message, {{"path", path}});
}

absl::Status CannotWrite(const std::string& path) {
  return Refuse("CANNOT_WRITE", path, "cannot write " + path + ": " + Cause());
}

std::string UserName(uid_t user) {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return std::to_string(user);
}

std::string Octal(mode_t mode) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%04o", static_cast<unsigned>(mode & 07777));
  return text.data();
}

absl::Status CheckOwner(const std::string& path, const struct stat& about, Protection protection) {
  const uid_t user = geteuid();
  if (about.st_uid == user) return absl::OkStatus();
  if (protection == Protection::kPublic && about.st_uid == 0) return absl::OkStatus();
  return Refuse("OTHER_OWNER", path,
                path + " belongs to user " + UserName(about.st_uid) +
                    ", but this program runs as " + UserName(user) + ": chown " + UserName(user) +
                    " " + ShellWord(path));
}

absl::Status CheckMode(const std::string& path, const struct stat& about, Protection protection) {
  const bool folder = S_ISDIR(about.st_mode);
  const bool secret = protection == Protection::kSecret;
  if ((about.st_mode & (secret ? kOthersMayAnything : kOthersMayWrite)) == 0)
    return absl::OkStatus();
  const std::string mend = folder ? "chmod 700 " : secret ? "chmod 600 " : "chmod go-w ";
  return Refuse("MODE_TOO_WIDE", path,
                path + " has mode " + Octal(about.st_mode) + ", so other users may " +
                    (secret ? "reach" : "change") + " it: " + mend + ShellWord(path));
}

absl::Status CheckFile(const std::string& path, const struct stat& about, Protection protection) {
  if (S_ISLNK(about.st_mode)) {
    return Refuse("NOT_A_FILE", path, path + " is a symbolic link: give the file that it names");
  }
  if (!S_ISREG(about.st_mode)) return Refuse("NOT_A_FILE", path, path + " is not a regular file");
  ONEPIECE_RETURN_IF_ERROR(CheckOwner(path, about, protection));
  return CheckMode(path, about, protection);
}

/// The file that `path` becomes. It stays locked from its first byte until it has its name, so two
/// writers never mix their bytes.
absl::Status LockPart(const std::string& part, int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return base::MakeError(absl::StatusCode::kAborted, "BEING_WRITTEN",
                           "another process writes " + part + ": try again", {{"path", part}});
  }
  // Another writer may have given the file that was opened its name, or removed it.
  struct stat opened {
  }, named{};
  if (fstat(fd, &opened) != 0) return CannotWrite(part);
  if (lstat(part.c_str(), &named) != 0 || opened.st_ino != named.st_ino ||
      opened.st_dev != named.st_dev) {
    return base::MakeError(absl::StatusCode::kAborted, "BEING_WRITTEN",
                           "another process has just written " + part + ": try again",
                           {{"path", part}});
  }
  // A crash may have left it. Nobody but this user could make it: the folder is 0700.
  ONEPIECE_RETURN_IF_ERROR(CheckFile(part, opened, Protection::kSecret));
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, const std::string& path, std::string_view bytes) {
  // The umask may have taken away the owner's own rights.
  if (ftruncate(fd, 0) != 0 || fchmod(fd, 0600) != 0) return CannotWrite(path);
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return CannotWrite(path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : CannotWrite(path);
}

absl::Status WritePart(const std::string& part, std::string_view bytes, const std::string& path) {
  const Descriptor file(
      open(part.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file.ok()) return CannotWrite(part);
  ONEPIECE_RETURN_IF_ERROR(LockPart(part, file.get()));
  absl::Status written = WriteAll(file.get(), part, bytes);
  if (written.ok() && std::rename(part.c_str(), path.c_str()) != 0) written = CannotWrite(path);
  if (!written.ok()) unlink(part.c_str());
  return written;
}

std::string FolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

absl::Status CannotOpen(const std::string& path) {
  if (errno == ELOOP)
    return Refuse("NOT_A_FILE", path, path + " is a symbolic link: give the file that it names");
  if (errno != ENOENT) return Refuse("CANNOT_READ", path, "cannot read " + path + ": " + Cause());
  if (access((path + ".part").c_str(), F_OK) == 0) {
    return NoFile(path, "NOT_WRITTEN_YET",
                  path + " is not there, only " + path + ".part: writing it was interrupted");
  }
  return NoFile(path, "NO_FILE", "there is no file " + path);
}

absl::StatusOr<std::string> ReadAll(int fd, const std::string& path) {
  std::string bytes(kMaxSecretBytes + 1, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Refuse("CANNOT_READ", path, "cannot read " + path + ": " + Cause());
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > kMaxSecretBytes) {
    return Refuse("TOO_LARGE", path,
                  path + " has more than " + std::to_string(kMaxSecretBytes) + " bytes");
  }
  if (size == 0)
    return Refuse("HALF_WRITTEN", path, path + " is empty: writing it was interrupted");
  bytes.resize(size);
  return bytes;
}

bool IsInClosedFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::path above = std::filesystem::absolute(path, error).lexically_normal();
  if (!above.has_filename()) above = above.parent_path();
  while (!error && above.has_relative_path()) {
    above = above.parent_path();
    if (CheckSecretFolder(above.string()).ok()) return true;
  }
  return false;
}

}  // namespace

std::string ShellWord(std::string_view path) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+@:,=%").find(c) != std::string_view::npos;
  };
  if (!path.empty() && path.front() != '-' && std::ranges::all_of(path, plain))
    return std::string(path);
  std::string word = "'";
  for (const char c : path) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

absl::Status CheckSecretFolder(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return NoFile(path, "NO_FILE", "there is no folder " + path);
    return Refuse("CANNOT_READ", path, "cannot read " + path + ": " + Cause());
  }
  if (!S_ISDIR(about.st_mode)) {
    return Refuse(
        "NOT_A_FOLDER", path,
        path + (S_ISLNK(about.st_mode) ? " is a symbolic link: give the folder that it names"
                                       : " is not a folder"));
  }
  ONEPIECE_RETURN_IF_ERROR(CheckOwner(path, about, Protection::kSecret));
  return CheckMode(path, about, Protection::kSecret);
}

absl::Status EnsureClosed(const std::string& path) {
  struct stat about {};
  if (lstat(path.c_str(), &about) != 0) {
    if (errno == ENOENT) return NoFile(path, "NO_FILE", "there is no " + path);
    return Refuse("CANNOT_READ", path, "cannot read " + path + ": " + Cause());
  }
  const bool folder = S_ISDIR(about.st_mode);
  const absl::Status closed =
      folder ? CheckSecretFolder(path) : CheckFile(path, about, Protection::kSecret);
  if (base::GetReason(closed).reason != "MODE_TOO_WIDE" || !IsInClosedFolder(path)) return closed;
  return chmod(path.c_str(), folder ? 0700 : 0600) == 0 ? absl::OkStatus() : CannotWrite(path);
}

absl::Status EnsureSecretFolder(const std::string& path) {
  std::error_code error;
  // "a/b/" names the same folder as "a/b"; lstat would follow a link behind a slash.
  std::filesystem::path whole = std::filesystem::absolute(path, error).lexically_normal();
  if (error) return Refuse("CANNOT_WRITE", path, "cannot make " + path + ": " + error.message());
  if (!whole.has_filename()) whole = whole.parent_path();
  std::filesystem::path made;
  for (const auto& part : whole) {
    made /= part;
    if (mkdir(made.c_str(), 0700) == 0) {
      if (chmod(made.c_str(), 0700) != 0 || !base::SyncFolderOf(made.string()))
        return CannotWrite(made.string());
    } else if (errno != EEXIST) {
      const int cause = errno;
      struct stat about {};
      // A folder above may be read-only and yet hold the next one.
      if (stat(made.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) continue;
      errno = cause;
      return CannotWrite(made.string());
    }
  }
  return CheckSecretFolder(whole.string());
}

absl::Status WriteSecretFile(const std::string& path, std::string_view bytes) {
  if (bytes.size() > kMaxSecretBytes) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "TOO_LARGE",
        path + " would have more than " + std::to_string(kMaxSecretBytes) + " bytes",
        {{"path", path}});
  }
  ONEPIECE_RETURN_IF_ERROR(CheckSecretFolder(FolderOf(path)));
  struct stat about {};
  if (lstat(path.c_str(), &about) == 0)
    ONEPIECE_RETURN_IF_ERROR(CheckFile(path, about, Protection::kSecret));
  ONEPIECE_RETURN_IF_ERROR(WritePart(path + ".part", bytes, path));
  // The new name survives a power cut only when the folder has been synced too.
  return base::SyncFolderOf(path) ? absl::OkStatus() : CannotWrite(path);
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path, Protection protection) {
  // O_NONBLOCK: to open a FIFO that somebody put there would wait for its writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.ok()) return CannotOpen(path);
  struct stat about {};
  if (fstat(file.get(), &about) != 0)
    return Refuse("CANNOT_READ", path, "cannot read " + path + ": " + Cause());
  ONEPIECE_RETURN_IF_ERROR(CheckFile(path, about, protection));
  return ReadAll(file.get(), path);
}

}  // namespace onepiece::identity
