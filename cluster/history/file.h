// The SQLite file of a recording: whether it is one, its tables, and its lock. Internal to
// cluster/history.
//
// Ownership: statements must be destroyed before their File.
// Threading: used by one thread at a time, as cluster/sqlite.
// Errors: FAILED_PRECONDITION (FOREIGN_FILE, OLDER_FORMAT, NEWER_FORMAT, IN_USE), DATA_LOSS
// (DAMAGED), RESOURCE_EXHAUSTED (DISK_LOW), NOT_FOUND (NO_FILE), PERMISSION_DENIED, UNAVAILABLE
// (FILE_FAILED).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "cluster/sqlite/sqlite.h"

namespace onepiece::history {

inline constexpr int kFormat = 2;                           ///< user_version. No other is read.
inline constexpr std::int32_t kApplicationId = 0x4F503143;  ///< "OP1C"

using sqlite::Blob;
using sqlite::Statement;

class File {
 public:
  /// Looks at `path` without changing anything there. Returns true for a recording, and false when
  /// there is nothing or an empty file.
  static absl::StatusOr<bool> IsRecording(const std::string& path);
  /// Opens or creates a file.
  /// REQUIRES: the caller holds the FileLock.
  static absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& path);
  /// Opens a file to read. A file that belongs to another user, or that we may not write, is not
  /// touched in any way: there is no lock and no side file.
  static absl::StatusOr<std::unique_ptr<File>> OpenToRead(const std::string& path);

  [[nodiscard]] sqlite::Database& database() const { return *database_; }
  absl::Status Execute(const std::string& sql) const { return database_->Execute(sql); }
  absl::StatusOr<Statement> Prepare(const std::string& sql) const {
    return database_->Prepare(sql);
  }
  absl::StatusOr<std::int64_t> Number(const std::string& sql) const {
    return database_->Number(sql);
  }
  [[nodiscard]] const std::string& path() const { return database_->path(); }
  /// Tells people what is left of a damaged file: "; 12 ticks can be read, from … to …".
  [[nodiscard]] std::string WhatIsLeft() const;
  /// Leaves one file without side files. It is called once, as the last thing.
  void Fold();

 private:
  static absl::Status Create(const std::string& path);
  explicit File(std::unique_ptr<sqlite::Database> database) : database_(std::move(database)) {}
  static absl::StatusOr<std::unique_ptr<File>> Connect(const std::string& path,
                                                       const sqlite::OpenOptions& options);
  const std::unique_ptr<sqlite::Database> database_;
};

/// PATH.lock, which the process that writes holds. The lock is gone with its process, however that
/// ends.
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

absl::Status FileExists(const std::string& path);
/// Renames a file and never replaces another one.
///
/// Errors: ALREADY_EXISTS (FILE_EXISTS).
absl::Status MoveToNewName(const std::string& from, const std::string& to);
/// Returns the size of the file and its side files.
std::int64_t BytesOnDisk(const std::string& path);

}  // namespace onepiece::history
