// The SQLite file of a recording: whose it is, its tables, its lock. Internal to gui/history.
//
// Threading  Thread-confined, as cluster/sqlite; statements must go before their File.
// Errors     FAILED_PRECONDITION (FOREIGN_FILE, OLDER_FORMAT, NEWER_FORMAT, IN_USE), DATA_LOSS
//            (DAMAGED),
//            RESOURCE_EXHAUSTED (DISK_LOW), NOT_FOUND (NO_FILE), PERMISSION_DENIED, UNAVAILABLE
//            (FILE_FAILED).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "cluster/sqlite/sqlite.h"

namespace onepiece::gui::history {

inline constexpr int kFormat = 2;                           ///< user_version; no other is read.
inline constexpr std::int32_t kApplicationId = 0x4F503143;  ///< "OP1C"

using sqlite::Blob;
using sqlite::Statement;

class File {
 public:
  /// What lies at `path`, without changing anything there: OK and false: nothing, or an empty file.
  static absl::StatusOr<bool> IsRecording(const std::string& path);
  /// Opens or creates. The caller holds the FileLock.
  static absl::StatusOr<std::unique_ptr<File>> OpenToWrite(const std::string& path);
  /// A file that is not ours is not touched in any way: no lock, no side files.
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
  /// Of a damaged file, for people: "; 12 ticks can be read, from … to …".
  [[nodiscard]] std::string WhatIsLeft() const;
  /// Leaves one file without side files. Once, as the last thing.
  void Fold();

 private:
  static absl::Status Create(const std::string& path);
  explicit File(std::unique_ptr<sqlite::Database> database) : database_(std::move(database)) {}
  static absl::StatusOr<std::unique_ptr<File>> Connect(const std::string& path,
                                                       const sqlite::Options& options);
  const std::unique_ptr<sqlite::Database> database_;
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
