// A folder of a database. One process uses it at a time, it belongs to one cluster for ever, and it
// holds a SQLite file. Internal to cluster/database.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cluster/base/ids.h"
#include "cluster/sqlite/sqlite.h"

namespace onepiece::database {

/// Turns the errno of a failed file operation into a status: RESOURCE_EXHAUSTED (DISK_FULL),
/// PERMISSION_DENIED or UNAVAILABLE (DISK_FAILED).
absl::Status DiskError(int number, std::string_view what, const std::string& path);

/// Returns the bytes of a uid, as they stand in a key of a table. They are valid as long as `uid`.
inline std::string_view KeyOf(const base::Uid& uid) {
  return {reinterpret_cast<const char*>(uid.bytes().data()), uid.bytes().size()};
}

/// Returns the checksum of a row: of its uid (as KeyOf returns it) and the rest of the row.
std::uint32_t RowChecksum(std::string_view uid, std::string_view rest);

/// A folder that this process has locked.
///
/// Ownership: holds the folder's lock. The kernel releases the lock when the process ends, however
/// it ends.
class DataFolder {
 public:
  /// Creates the folder if it does not exist, and locks it. Others cannot reach what is in it.
  ///
  /// Errors: FAILED_PRECONDITION (FOLDER_IN_USE), those of DiskError and of
  /// identity::EnsureClosed().
  static absl::StatusOr<std::unique_ptr<DataFolder>> Open(const std::string& path);
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  [[nodiscard]] std::string File(std::string_view name) const;
  /// Makes the folder's names durable: files that were created, renamed or removed.
  [[nodiscard]] absl::Status Sync() const;

 private:
  DataFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  const std::string path_;
  const int lock_;
};

struct TablesOptions {
  std::string name;                 ///< Name of the file.
  std::int32_t application_id = 0;  ///< Distinguishes our files from those of other programs.
  int format = 1;                   ///< Files of a newer format are refused.
  std::string schema;
  std::string cluster_id;
};

/// Opens the folder's SQLite file with a write-ahead log and durable commits. `load` reads what the
/// file holds. When `load` or SQLite reports DATA_LOSS, the file is renamed to NAME.damaged (only
/// the last one is kept, and the log names it) and a new file is created. A new file is also
/// created when there is none, or an empty one. `may_make` is called before a file is created, and
/// its error is returned. `made` is set to whether a file was created.
///
/// Errors: FAILED_PRECONDITION (OTHER_CLUSTER, NEWER_FORMAT), those of `load`, `may_make` and
/// DiskError.
absl::StatusOr<std::unique_ptr<sqlite::Database>> OpenTables(
    const DataFolder& folder, const TablesOptions& options,
    absl::FunctionRef<absl::Status(sqlite::Database&)> load,
    absl::FunctionRef<absl::Status()> may_make, bool& made);

}  // namespace onepiece::database
