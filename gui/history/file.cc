#include "gui/history/file.h"

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
#include "gui/history/codec.h"

namespace onepiece::gui::history {
namespace {

// Frames of one minute have their layout's first frame for a reference; a keyframe's shape holds
// until the next one, with the changes since. Ticks are counted, each change's checksum goes on
// from the row before, and a frame names the last one: of these a row that is lost is found.
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
    " entity TEXT NOT NULL, text TEXT NOT NULL);"
    "CREATE INDEX mark_time ON mark (t_ms);"
    "CREATE TABLE gap (from_ms INTEGER PRIMARY KEY, to_ms INTEGER NOT NULL, reason TEXT NOT NULL);"
    "CREATE TABLE rollup (level_s INTEGER NOT NULL, t_ms INTEGER NOT NULL, numbers BLOB NOT NULL,"
    " crc INTEGER NOT NULL);"
    "CREATE UNIQUE INDEX rollup_time ON rollup (level_s, t_ms);";

constexpr int kBusyMs = 2000;
constexpr int kMaxBlobBytes = 64 << 20;

absl::Status Foreign(const std::string& path, std::string_view why) {
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "FOREIGN_FILE",
      absl::StrCat("'", path, "' is no recording of OnePiece (", std::string(why),
                   ") and was left as it is: give another name"));
}

absl::Status SystemError(std::string_view what, const std::string& path) {
  const int number = errno;
  const std::string message = absl::StrCat(std::string(what), " '", path, "': ", strerror(number));
  if (number == ENOENT) return base::MakeError(absl::StatusCode::kNotFound, "NO_FILE", message);
  if (number == EACCES || number == EPERM || number == EROFS)
    return base::MakeError(absl::StatusCode::kPermissionDenied, "FILE_FAILED", message);
  return base::MakeError(absl::StatusCode::kUnavailable, "FILE_FAILED", message);
}

// For an URI: what would end or change the path.
std::string Escaped(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      absl::StrAppend(&uri, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      uri += c;
    }
  }
  return uri;
}

bool IsOurs(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || info.st_uid != geteuid()) return false;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return access(path.c_str(), W_OK) == 0 &&
         access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
}

}  // namespace

absl::StatusOr<bool> Statement::Next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : file_->Error(code);
  sqlite3_reset(statement_);
  if (!status.ok()) return status;
  return false;
}

absl::Status Statement::RunRow(const Statement& row) {
  sqlite3_reset(statement_);
  for (int i = 0; i < sqlite3_column_count(row.statement_); ++i)
    sqlite3_bind_value(statement_, i + 1, sqlite3_column_value(row.statement_, i));
  const absl::Status status = Next().status();
  sqlite3_reset(statement_);
  return status;
}

std::string_view Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

// SQLite takes a null pointer for NULL, whatever the length.
void Statement::Bind(int place, std::string_view text) {
  sqlite3_bind_text64(statement_, place, text.empty() ? "" : text.data(), text.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
}

void Statement::Bind(int place, Blob blob) {
  sqlite3_bind_blob64(statement_, place, blob.bytes.empty() ? "" : blob.bytes.data(),
                      blob.bytes.size(), SQLITE_STATIC);
}

absl::StatusOr<std::unique_ptr<File>> File::Connect(const std::string& path, int flags,
                                                    bool immutable) {
  std::unique_ptr<File> file(new File(path));
  const std::string uri = Escaped(path) + (immutable ? "?immutable=1" : "");
  const int code = sqlite3_open_v2(uri.c_str(), &file->connection_,
                                   flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return file->Error(code);
  sqlite3_extended_result_codes(file->connection_, 1);
  sqlite3_busy_timeout(file->connection_, kBusyMs);
  sqlite3_limit(file->connection_, SQLITE_LIMIT_LENGTH, kMaxBlobBytes);
  // What the file brings along (views, triggers) is not run.
  sqlite3_db_config(file->connection_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(file->connection_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(file->connection_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(file->connection_, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  return file;
}

absl::StatusOr<bool> File::IsRecording(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return false;
    return SystemError("cannot look at", path);
  }
  if (!S_ISREG(info.st_mode)) return Foreign(path, "it is no file");
  if (info.st_size == 0) return false;
  ONEPIECE_ASSIGN_OR_RETURN(const auto file, Connect(path, SQLITE_OPEN_READONLY, true));
  auto id = file->Number("PRAGMA application_id");
  const absl::Status damage = id.status();
  if (damage.code() == absl::StatusCode::kDataLoss) {
    // A file that is cut off still says whose it is, and SQLite reads on when it is told to.
    sqlite3_db_config(file->connection_, SQLITE_DBCONFIG_DEFENSIVE, 0, nullptr);
    ONEPIECE_RETURN_IF_ERROR(file->Execute("PRAGMA writable_schema=ON"));
    id = file->Number("PRAGMA application_id");
    if (!id.ok()) return Foreign(path, "no database");
    if (*id == kApplicationId)
      return Damaged(absl::StrCat(base::Message(damage), file->WhatIsLeft()));
  }
  if (!id.ok()) return id.status();
  if (*id != kApplicationId) return Foreign(path, "a database of another program");
  // A page that is half there is one that SQLite fills with zeros. (What is being written may be
  // between two pages, and is whole in the write-ahead log.)
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t page_bytes, file->Number("PRAGMA page_size"));
  if (info.st_size % page_bytes != 0 && !std::filesystem::exists(path + "-wal") &&
      !FileLock::IsTaken(path)) {
    return Damaged(absl::StrCat(path, ": it ends in the middle of a page", file->WhatIsLeft()));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t format, file->Number("PRAGMA user_version"));
  if (format > kFormat) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "NEWER_FORMAT",
        absl::StrCat("'", path, "' was recorded by a newer program (format ", format,
                     ", this one reads up to ", kFormat, "): use that program"));
  }
  return true;
}

// Whole or not at all: a file that is half made could not say whose it is.
absl::Status File::Create(const std::string& path) {
  const std::string made = absl::StrCat(path, ".new-", getpid());
  std::error_code error;
  std::filesystem::remove(made, error);
  absl::Status status;
  {
    ONEPIECE_ASSIGN_OR_RETURN(const auto file,
                              Connect(made, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, false));
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
  ONEPIECE_ASSIGN_OR_RETURN(auto file, Connect(path, SQLITE_OPEN_READWRITE, false));
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
  return Connect(path, SQLITE_OPEN_READONLY, !IsOurs(path));
}

File::~File() { sqlite3_close(connection_); }

void File::Fold() {
  // Best effort: a reader that stands in the way leaves a write-ahead log, which is as good.
  sqlite3_busy_timeout(connection_, 100);
  (void)Execute("PRAGMA journal_mode=DELETE");
}

absl::Status File::Execute(const std::string& sql) {
  const int code = sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Statement> File::Prepare(const char* sql) const {
  Statement statement;
  statement.file_ = this;
  const int code = sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                      &statement.statement_, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return statement;
}

absl::StatusOr<std::int64_t> File::Number(const char* sql) const {
  ONEPIECE_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, statement.Next());
  return found ? statement.Int(0) : 0;
}

absl::Status File::Error(int code) const {
  const std::string message = absl::StrCat(path_, ": ", sqlite3_errmsg(connection_));
  if (code == SQLITE_IOERR_SHORT_READ) return Damaged(absl::StrCat(path_, ": a page is cut off"));
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return base::MakeError(absl::StatusCode::kUnavailable, "FILE_FAILED", message);
    case SQLITE_FULL:
      return base::MakeError(absl::StatusCode::kResourceExhausted, "DISK_LOW", message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return base::MakeError(absl::StatusCode::kPermissionDenied, "FILE_FAILED", message);
    // Our statements are right: when one does not fit, the tables are not as we made them.
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_CORRUPT:
    case SQLITE_TOOBIG:
    case SQLITE_NOTADB:
      return Damaged(message);
    default:
      return base::MakeError(absl::StatusCode::kUnavailable, "FILE_FAILED", message);
  }
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
                      TimeText(last), ": `sqlite3 '", path_, "' .recover` saves them");
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
    // Its last owner may have taken the name away between open and lock.
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
  unlink(path_.c_str());
  close(file_);
}

absl::Status FileExists(const std::string& path) {
  return base::MakeError(absl::StatusCode::kAlreadyExists, "FILE_EXISTS",
                         absl::StrCat("'", path, "' exists already: give another name"));
}

absl::Status MoveToNewName(const std::string& from, const std::string& to) {
  if (link(from.c_str(), to.c_str()) == 0) {
    unlink(from.c_str());
    return absl::OkStatus();
  }
  // Not every file system has links.
  if (errno != EEXIST &&
      renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  return errno == EEXIST ? FileExists(to) : SystemError("cannot make", to);
}

std::int64_t BytesOnDisk(const std::string& path) {
  std::int64_t bytes = 0;
  for (const char* suffix : {"", "-wal", "-journal"}) {
    struct stat info {};
    if (stat((path + suffix).c_str(), &info) == 0) bytes += info.st_size;
  }
  return bytes;
}

}  // namespace onepiece::gui::history
