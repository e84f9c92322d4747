// The SQLite file of a recording: whose it is, its tables, its lock. Internal to gui/history.
//
// Threading  Thread-confined, statements too; they must go before their File.
// Errors     FAILED_PRECONDITION (FOREIGN_FILE, NEWER_FORMAT, IN_USE), DATA_LOSS (DAMAGED),
//            RESOURCE_EXHAUSTED (DISK_LOW), NOT_FOUND (NO_FILE), PERMISSION_DENIED, UNAVAILABLE
//            (FILE_FAILED).
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace onepiece::gui::history {

inline constexpr int kFormat = 1;                           ///< user_version.
inline constexpr std::int32_t kApplicationId = 0x4F503143;  ///< "OP1C"

class File;

/// Bound as a blob; a string_view alone is text.
struct Blob {
  std::string_view bytes;
};

class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept { *this = std::move(other); }
  Statement& operator=(Statement&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(statement_, other.statement_);
    return *this;
  }
  ~Statement() { sqlite3_finalize(statement_); }

  /// Binds the values to ?1, ?2, …; Next() walks the rows. Values are borrowed until the walk ends.
  template <typename... Values>
  Statement& Start(const Values&... values) {
    sqlite3_reset(statement_);
    int place = 0;
    (Bind(++place, values), ...);
    return *this;
  }
  /// False: no more rows, and the statement is ready for another start.
  absl::StatusOr<bool> Next();
  /// Start, and no rows.
  template <typename... Values>
  absl::Status Run(const Values&... values) {
    const absl::StatusOr<bool> more = Start(values...).Next();
    sqlite3_reset(statement_);
    return more.status();
  }
  /// With the columns of another statement's row for values.
  absl::Status RunRow(const Statement& row);
  /// Ends a walk before its end: an open one keeps the file from being folded.
  void Stop() { sqlite3_reset(statement_); }

  [[nodiscard]] std::int64_t Int(int column) const {
    return sqlite3_column_int64(statement_, column);
  }
  [[nodiscard]] bool IsNull(int column) const {
    return sqlite3_column_type(statement_, column) == SQLITE_NULL;
  }
  /// Text or blob; valid until the next call.
  [[nodiscard]] std::string_view Bytes(int column) const;
  [[nodiscard]] std::string Text(int column) const { return std::string(Bytes(column)); }

 private:
  friend class File;
  void Bind(int place, std::int64_t value) { sqlite3_bind_int64(statement_, place, value); }
  void Bind(int place, std::string_view text);
  void Bind(int place, Blob blob);

  const File* file_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

class File {
 public:
  /// What lies at `path`, without changing anything there: OK and false: nothing, or an empty file.
  static absl::StatusOr<bool> IsRecording(const std::string& path);
  /// Opens or creates. The caller holds the FileLock.
  static absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& path);
  /// A file that is not ours is not touched in any way: no lock, no side files.
  static absl::StatusOr<std::unique_ptr<File>> OpenToRead(const std::string& path);
  ~File();

  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const char* sql) const;
  /// The first column of the first row; 0 when there is none.
  absl::StatusOr<std::int64_t> Number(const char* sql) const;
  [[nodiscard]] absl::Status Error(int code) const;
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Of a damaged file, for people: "; 12 ticks can be read, from … to …".
  [[nodiscard]] std::string WhatIsLeft() const;
  /// Leaves one file without side files. Once, as the last thing.
  void Fold();

 private:
  static absl::Status Create(const std::string& path);
  explicit File(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<std::unique_ptr<File>> Connect(const std::string& path, int flags,
                                                       bool immutable);
  const std::string path_;
  sqlite3* connection_ = nullptr;
};

/// PATH.lock, held by the one that writes. Gone with its process, however that ends.
class FileLock {
 public:
  /// Errors: FAILED_PRECONDITION (IN_USE).
  static absl::StatusOr<std::unique_ptr<FileLock>> Take(const std::string& path);
  static bool IsTaken(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  FileLock(std::string path, int file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  const int file_;
};

/// For people, in their time zone.
std::string TimeText(std::int64_t at_ms);
absl::Status FileExists(const std::string& path);
/// Takes nobody's place: ALREADY_EXISTS (FILE_EXISTS).
absl::Status MoveToNewName(const std::string& from, const std::string& to);
/// Of the file and its side files.
std::int64_t BytesOnDisk(const std::string& path);

}  // namespace onepiece::gui::history
