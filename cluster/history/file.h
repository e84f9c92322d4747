// The SQLite file of a recording: how to tell it from other files, its tables, and its lock.
// Internal to cluster/history.
//
// Ownership: statements must be destroyed before their File.
// Threading: one thread at a time uses a File (as in cluster/sqlite). FileLock and the free
// functions have no such limit.
// Errors of File: FAILED_PRECONDITION (FOREIGN_FILE, OLDER_FORMAT, NEWER_FORMAT), DATA_LOSS
// (DAMAGED), RESOURCE_EXHAUSTED (DISK_LOW), NOT_FOUND (NO_FILE), PERMISSION_DENIED and UNAVAILABLE
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

/// The version of a recording's tables, in SQLite's user_version. A file of another is refused.
inline constexpr int kFormat = 2;
/// "OP1C", in SQLite's application_id: marks a file as ours.
inline constexpr std::int32_t kApplicationId = 0x4F503143;

using sqlite::Blob;
using sqlite::Statement;

/// An open recording. It owns its connection.
class File {
 public:
  /// Looks at `path` without changing anything there. Returns true for a recording, and false when
  /// the path is free or the file is empty. Any other file is an error.
  static absl::StatusOr<bool> IsRecording(const std::string& path);
  /// Opens the recording, or makes one in place of nothing or of an empty file.
  ///
  /// REQUIRES: the caller holds the FileLock.
  static absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& path);
  /// Opens a recording to read, beside a process that writes it. If the file belongs to another
  /// user, or this process may not write the file or its folder, it is read without a lock and
  /// without -wal and -shm files. An empty file is FOREIGN_FILE.
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
  /// Returns a clause for the error message of a damaged file: "; 12 ticks can be read, from … to
  /// …", or "; nothing of it can be read".
  [[nodiscard]] std::string WhatIsLeft() const;
  /// Folds the write-ahead log into the file, and removes it. Waits at most 100 ms: if somebody
  /// reads the file, the log stays, and nothing is lost. Call it once, as the last thing.
  void Fold();

 private:
  static absl::Status Create(const std::string& path);
  explicit File(std::unique_ptr<sqlite::Database> database) : database_(std::move(database)) {}
  static absl::StatusOr<std::unique_ptr<File>> Connect(const std::string& path,
                                                       const sqlite::OpenOptions& options);
  const std::unique_ptr<sqlite::Database> database_;
};

/// The lock of the process that writes the recording at PATH, on the file PATH.lock. The system
/// frees it when the process ends. The destructor also removes PATH.lock.
class FileLock {
 public:
  /// Errors: FAILED_PRECONDITION (IN_USE), NOT_FOUND (NO_FILE), PERMISSION_DENIED and UNAVAILABLE
  /// (FILE_FAILED).
  static absl::StatusOr<std::unique_ptr<FileLock>> Take(const std::string& path);
  /// Returns true while any process, this one too, holds the lock.
  static bool IsTaken(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  FileLock(std::string path, int file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  const int file_;
};

/// Returns ALREADY_EXISTS (FILE_EXISTS) for this path. It does not look at the disk.
absl::Status FileExistsError(const std::string& path);
/// Renames a file and never replaces another one.
///
/// Errors: ALREADY_EXISTS (FILE_EXISTS), and NO_FILE and FILE_FAILED of a failed rename.
absl::Status MoveToNewName(const std::string& from, const std::string& to);
/// Returns the bytes of the file, its -wal and its -journal. A missing file counts as 0.
std::int64_t BytesOnDisk(const std::string& path);

}  // namespace onepiece::history
