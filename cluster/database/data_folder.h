// A folder of a database: one process at a time, one cluster for ever, and a SQLite file in it.
// Internal to cluster/database.
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

/// What an errno means for whoever writes files: RESOURCE_EXHAUSTED (DISK_FULL), PERMISSION_DENIED,
/// UNAVAILABLE (DISK_FAILED).
absl::Status DiskError(int number, std::string_view what, const std::string& path);

/// A uid as a key of a table.
inline std::string_view KeyOf(const base::Uid& uid) {
  return {reinterpret_cast<const char*>(uid.bytes().data()), uid.bytes().size()};
}

/// Of a row: its uid (as KeyOf has it) and the rest of it.
std::uint32_t RowChecksum(std::string_view uid, std::string_view rest);

/// Ownership: Holds the folder's lock, which ends with the process however that ends.
class DataFolder {
 public:
  /// Makes the folder where there is none.
  /// Errors: FAILED_PRECONDITION (FOLDER_IN_USE), those of DiskError.
  static absl::StatusOr<std::unique_ptr<DataFolder>> Open(const std::string& path);
  ~DataFolder();
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  [[nodiscard]] std::string File(std::string_view name) const;
  /// Makes the names in it durable: files that came, were renamed or went.
  [[nodiscard]] absl::Status Sync() const;

 private:
  DataFolder(std::string path, int lock, int folder)
      : path_(std::move(path)), lock_(lock), folder_(folder) {}
  const std::string path_;
  const int lock_, folder_;
};

struct TablesOptions {
  std::string name;                 ///< Of the file.
  std::int32_t application_id = 0;  ///< Tells our files from others'.
  int format = 1;                   ///< Newer ones are refused.
  std::string schema;
  std::string cluster_id;
};

/// Opens the folder's SQLite file: WAL, every commit durable. `load` reads what it holds; when it,
/// or SQLite, says DATA_LOSS, the file is set aside as NAME.damaged (one is kept; the log names it)
/// and made anew. A file that is empty, or not there, is made too. Before one is made, `may_make`
/// is asked. `made` tells the caller.
/// Errors: FAILED_PRECONDITION (OTHER_CLUSTER, NEWER_FORMAT), those of `load`, `may_make` and
/// DiskError.
absl::StatusOr<std::unique_ptr<sqlite::Database>> OpenTables(
    const DataFolder& folder, const TablesOptions& options,
    absl::FunctionRef<absl::Status(sqlite::Database&)> load,
    absl::FunctionRef<absl::Status()> may_make, bool& made);

}  // namespace onepiece::database
