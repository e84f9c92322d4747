#include "cluster/history/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cluster/base/status.h"
#include "cluster/history/codec.h"
#include "cluster/history/recording.h"
#include "cluster/identity/secret_files.h"

namespace onepiece::history {
namespace {

// The rows depend on each other, so that a lost row is found:
// - The frames of one minute have the first frame of their layout as reference.
// - The shape of a keyframe, with the changes since, holds until the next keyframe.
// - Ticks are counted.
// - The checksum of a change continues that of the row before. A frame names the last one.
// - A window of a rollup must be there when it has frames and other windows follow.
// - meta 'marks' has the number of marks.
constexpr const char* kTables =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, unit TEXT NOT NULL,"
    " last_ms INTEGER NOT NULL, crc INTEGER NOT NULL);"
    "CREATE TABLE layout (t_ms INTEGER PRIMARY KEY, series BLOB NOT NULL, crc INTEGER NOT NULL);"
    "CREATE TABLE frame (t_ms INTEGER PRIMARY KEY, tick INTEGER NOT NULL, shape_crc INTEGER NOT"
    " NULL, numbers BLOB NOT NULL, crc INTEGER NOT NULL);"
    "CREATE TABLE keyframe (t_ms INTEGER PRIMARY KEY, shape BLOB NOT NULL, crc INTEGER NOT NULL);"
    "CREATE TABLE change (t_ms INTEGER PRIMARY KEY, shape BLOB NOT NULL, crc INTEGER NOT NULL);"
    "CREATE TABLE mark (id INTEGER PRIMARY KEY, t_ms INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " entity TEXT NOT NULL, text TEXT NOT NULL, crc INTEGER NOT NULL);"
    "CREATE INDEX mark_time ON mark (t_ms);"
    "CREATE TABLE gap (from_ms INTEGER PRIMARY KEY, to_ms INTEGER NOT NULL, reason TEXT NOT NULL,"
    " crc INTEGER NOT NULL);"
    "CREATE TABLE rollup (level_s INTEGER NOT NULL, t_ms INTEGER NOT NULL, numbers BLOB NOT NULL,"
    " crc INTEGER NOT NULL);"
    "CREATE UNIQUE INDEX rollup_time ON rollup (level_s, t_ms);"
    "INSERT INTO meta VALUES ('marks', '0');";

constexpr std::chrono::milliseconds kBusyWait{2000};

absl::Status Foreign(const std::string& path, std::string_view why) {
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "FOREIGN_FILE",
      absl::StrCat("'", path, "' is no recording of OnePiece (", std::string(why),
                   ") and was left as it is: give another name"));
}

absl::Status SystemError(std::string_view what, const std::string& path) {
  const int number = errno;
  const std::string message = absl::StrCat(std::string(what), " '", path, "': ", strerror(number));
  if (number == ENOENT || number == ENOTDIR)
    return base::MakeError(absl::StatusCode::kNotFound, "NO_FILE", message);
  if (number == EACCES || number == EPERM || number == EROFS)
    return base::MakeError(absl::StatusCode::kPermissionDenied, "FILE_FAILED", message);
  return base::MakeError(absl::StatusCode::kUnavailable, "FILE_FAILED", message);
}

absl::Status ExplainFailure(const std::string& path, sqlite::Failure failure,
                            std::string_view what) {
  const std::string message = absl::StrCat(path, ": ", std::string(what));
  switch (failure) {
    case sqlite::Failure::kFull:
      return base::MakeError(absl::StatusCode::kResourceExhausted, "DISK_LOW", message);
    case sqlite::Failure::kDenied:
      return base::MakeError(absl::StatusCode::kPermissionDenied, "FILE_FAILED", message);
    case sqlite::Failure::kDamaged:
      return Damaged(message);
    case sqlite::Failure::kBusy:
    case sqlite::Failure::kFailed:
      break;
  }
  return base::MakeError(absl::StatusCode::kUnavailable, "FILE_FAILED", message);
}

bool IsOurs(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || info.st_uid != geteuid()) return false;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return access(path.c_str(), W_OK) == 0 &&
         access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<File>> File::Connect(const std::string& path,
                                                    const sqlite::OpenOptions& options) {
  sqlite::OpenOptions all = options;
  all.busy_wait = kBusyWait;
  ONEPIECE_ASSIGN_OR_RETURN(
      auto database,
      sqlite::Database::Open(path, all, [path](sqlite::Failure failure, std::string_view what) {
        return ExplainFailure(path, failure, what);
      }));
  return std::unique_ptr<File>(new File(std::move(database)));
}

absl::StatusOr<bool> File::IsRecording(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return false;
    return SystemError("cannot look at", path);
  }
  if (!S_ISREG(info.st_mode)) return Foreign(path, "it is no file");
  if (info.st_size == 0) return false;
  sqlite::OpenOptions options{.mode = sqlite::OpenMode::kReadFrozen, .untrusted = true};
  ONEPIECE_ASSIGN_OR_RETURN(auto file, Connect(path, options));
  auto id = file->Number("PRAGMA application_id");
  const absl::Status damage = id.status();
  if (damage.code() == absl::StatusCode::kDataLoss) {
    // The first page of a truncated file still says whose it is. SQLite reads it with
    // writable_schema.
    options.damaged = true;
    ONEPIECE_ASSIGN_OR_RETURN(file, Connect(path, options));
    ONEPIECE_RETURN_IF_ERROR(file->Execute("PRAGMA writable_schema=ON"));
    id = file->Number("PRAGMA application_id");
    if (!id.ok()) return Foreign(path, "no database");
    // The program ended while the write-ahead log was being folded in, or that happens now. The log
    // has everything.
    if (*id == kApplicationId &&
        (std::filesystem::exists(path + "-wal") || FileLock::IsTaken(path))) {
      return true;
    }
    if (*id == kApplicationId)
      return Damaged(absl::StrCat(base::Message(damage), file->WhatIsLeft()));
  }
  if (!id.ok()) return id.status();
  if (*id != kApplicationId) return Foreign(path, "a database of another program");
  // SQLite would fill an incomplete page with zeros. A file that is being written may end between
  // two pages, but is complete in the write-ahead log.
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t page_bytes, file->Number("PRAGMA page_size"));
  if (info.st_size % page_bytes != 0 && !std::filesystem::exists(path + "-wal") &&
      !FileLock::IsTaken(path)) {
    return Damaged(absl::StrCat(path, ": it ends in the middle of a page", file->WhatIsLeft()));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t format, file->Number("PRAGMA user_version"));
  if (format < kFormat) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "OLDER_FORMAT",
        absl::StrCat("'", path, "' was recorded by an earlier version of OnePiece (format ", format,
                     "), and this one reads format ", kFormat,
                     " only: look at it with the version that wrote it; to record under this name, "
                     "move it away"));
  }
  if (format > kFormat) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "NEWER_FORMAT",
        absl::StrCat("'", path, "' was recorded by a newer program (format ", format,
                     ", this one reads ", kFormat, "): use that program"));
  }
  return true;
}

// Creates the file completely or not at all, because an incomplete file could not say whose it is.
absl::Status File::Create(const std::string& path) {
  const std::string made = absl::StrCat(path, ".new-", getpid());
  std::error_code error;
  std::filesystem::remove(made, error);
  absl::Status status;
  {
    ONEPIECE_ASSIGN_OR_RETURN(const auto file, Connect(made, {.mode = sqlite::OpenMode::kCreate}));
    status = file->Execute(absl::StrCat(
        "PRAGMA page_size=8192; PRAGMA auto_vacuum=INCREMENTAL; BEGIN EXCLUSIVE; PRAGMA "
        "application_id=",
        kApplicationId, "; PRAGMA user_version=", kFormat, ";", kTables, "COMMIT"));
  }
  if (status.ok() && rename(made.c_str(), path.c_str()) != 0)
    status = SystemError("cannot make", path);
  if (!status.ok()) std::filesystem::remove(made, error);
  return status;
}

absl::StatusOr<std::unique_ptr<File>> File::OpenToWrite(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool there, IsRecording(path));
  if (!there) ONEPIECE_RETURN_IF_ERROR(Create(path));
  // It tells of jobs and people, and an earlier version made it as wide as the umask let it.
  ONEPIECE_RETURN_IF_ERROR(identity::EnsureClosed(path));
  ONEPIECE_ASSIGN_OR_RETURN(auto file,
                            Connect(path, {.mode = sqlite::OpenMode::kWrite, .untrusted = true}));
  ONEPIECE_RETURN_IF_ERROR(
      file->Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA "
                    "wal_autocheckpoint=128; PRAGMA journal_size_limit=2097152"));
  return file;
}

absl::StatusOr<std::unique_ptr<File>> File::OpenToRead(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool there, IsRecording(path));
  if (!there) {
    if (std::filesystem::exists(path)) return Foreign(path, "it is empty");
    errno = ENOENT;
    return SystemError("cannot open", path);
  }
  const sqlite::OpenMode mode =
      IsOurs(path) ? sqlite::OpenMode::kRead : sqlite::OpenMode::kReadFrozen;
  return Connect(path, {.mode = mode, .untrusted = true});
}

void File::Fold() {
  // This may fail while somebody reads the file. The write-ahead log then stays, which is as good.
  database_->SetBusyWait(std::chrono::milliseconds(100));
  (void)Execute("PRAGMA journal_mode=DELETE");
}

std::string File::WhatIsLeft() const {
  auto ticks = Prepare("SELECT t_ms FROM frame ORDER BY t_ms");
  std::int64_t count = 0, first = 0, last = 0;
  if (ticks.ok()) {
    for (auto more = ticks->Next(); more.ok() && *more; more = ticks->Next()) {
      last = ticks->Int(0);
      if (count++ == 0) first = last;
    }
  }
  if (count == 0) return "; nothing of it can be read";
  return absl::StrCat("; ", count, " ticks can be read, from ", TimeText(first), " to ",
                      TimeText(last), ": `sqlite3 '", path(), "' .recover` saves them");
}

std::string TimeText(std::int64_t at_ms) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(at_ms), absl::LocalTimeZone());
}

absl::StatusOr<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path) {
  const std::string lock_path = path + ".lock";
  for (;;) {
    const int file = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return SystemError("cannot lock", lock_path);
    struct flock whole {};
    whole.l_type = F_WRLCK;
    if (fcntl(file, F_OFD_SETLK, &whole) != 0) {
      const bool taken = errno == EAGAIN || errno == EACCES;
      const absl::Status failed = SystemError("cannot lock", lock_path);
      close(file);
      if (!taken) return failed;
      return base::MakeError(
          absl::StatusCode::kFailedPrecondition, "IN_USE",
          absl::StrCat("another program records into '", path, "': end it, or give another name"));
    }
    // The last owner may have removed the name between open and lock. A lock on a file without a
    // name would keep nobody away.
    struct stat held {
    }, named{};
    if (fstat(file, &held) == 0 && stat(lock_path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino) {
      return std::unique_ptr<FileLock>(new FileLock(lock_path, file));
    }
    close(file);
  }
}

bool FileLock::IsTaken(const std::string& path) {
  const int file = open((path + ".lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  struct flock whole {};
  whole.l_type = F_WRLCK;
  const bool taken = fcntl(file, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
  close(file);
  return taken;
}

FileLock::~FileLock() {
  // The name goes while the lock is held. After close() another process may hold a lock on this
  // name, and unlink() would take the name away from it.
  unlink(path_.c_str());
  close(file_);
}

absl::Status FileExistsError(const std::string& path) {
  return base::MakeError(absl::StatusCode::kAlreadyExists, "FILE_EXISTS",
                         absl::StrCat("'", path, "' exists already: give another name"));
}

absl::Status MoveToNewName(const std::string& from, const std::string& to) {
  // link() fails when the name exists, where rename() would replace the file.
  if (link(from.c_str(), to.c_str()) == 0) {
    unlink(from.c_str());
    return absl::OkStatus();
  }
  // Not every file system has hard links.
  if (errno != EEXIST &&
      renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  return errno == EEXIST ? FileExistsError(to) : SystemError("cannot make", to);
}

std::int64_t BytesOnDisk(const std::string& path) {
  std::int64_t bytes = 0;
  for (const char* suffix : {"", "-wal", "-journal"}) {
    struct stat info {};
    if (stat((path + suffix).c_str(), &info) == 0) bytes += info.st_size;
  }
  return bytes;
}

}  // namespace onepiece::history
