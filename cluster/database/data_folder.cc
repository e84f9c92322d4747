#include "cluster/database/data_folder.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>

#include "absl/strings/str_cat.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/folder.h"
#include "cluster/base/status.h"
#include "cluster/identity/secret_files.h"

namespace onepiece::database {
namespace {

namespace fs = std::filesystem;

absl::Status Damaged(const std::string& path, std::string_view what) {
  return base::MakeError(absl::StatusCode::kDataLoss, "INDEX_DAMAGED",
                         absl::StrCat(path, " is damaged: ", std::string(what)));
}

sqlite::Explain ExplainFor(const std::string& path) {
  return [path](sqlite::Failure failure, std::string_view what) {
    const std::string message = absl::StrCat(path, ": ", std::string(what));
    switch (failure) {
      case sqlite::Failure::kBusy:
        return base::MakeError(absl::StatusCode::kFailedPrecondition, "FOLDER_IN_USE",
                               absl::StrCat(path, " is in use by another process"));
      case sqlite::Failure::kFull:
        return base::MakeError(absl::StatusCode::kResourceExhausted, "DISK_FULL", message);
      case sqlite::Failure::kDenied:
        return base::MakeError(absl::StatusCode::kPermissionDenied, "PERMISSION_DENIED", message);
      case sqlite::Failure::kDamaged:
        return Damaged(path, what);
      case sqlite::Failure::kFailed:
        break;
    }
    return base::MakeError(absl::StatusCode::kUnavailable, "DISK_FAILED", message);
  };
}

// With EXCLUSIVE, SQLite needs no shared-memory file beside the database. Vacuum and size limit let
// the file and its log shrink again when rows are deleted.
constexpr const char* kPragmas =
    "PRAGMA locking_mode=EXCLUSIVE; PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; "
    "PRAGMA synchronous=FULL; PRAGMA secure_delete=OFF; PRAGMA journal_size_limit=4194304; "
    "BEGIN EXCLUSIVE; COMMIT";

absl::Status Make(sqlite::Database& database, const TablesOptions& options) {
  ONEPIECE_RETURN_IF_ERROR(database.Execute(kPragmas));
  return database.InTransaction([&]() -> absl::Status {
    ONEPIECE_RETURN_IF_ERROR(database.Execute(absl::StrCat(
        "CREATE TABLE meta (cluster BLOB NOT NULL); ", options.schema, "; PRAGMA application_id=",
        options.application_id, "; PRAGMA user_version=", options.format)));
    ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement insert,
                              database.Prepare("INSERT INTO meta VALUES (?1)"));
    return insert.Run(sqlite::Blob{options.cluster_id});
  });
}

absl::Status CheckOwner(sqlite::Database& database, const TablesOptions& options) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t id, database.Number("PRAGMA application_id"));
  if (id != options.application_id) return Damaged(database.path(), "not a file of a database");
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t format, database.Number("PRAGMA user_version"));
  if (format > options.format) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "NEWER_FORMAT",
        absl::StrCat(database.path(), " has format ", format, ", this program reads ",
                     options.format, ": run the newer program that wrote it"));
  }
  if (format != options.format) return Damaged(database.path(), "a format that never was");
  ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement select, database.Prepare("SELECT cluster FROM meta"));
  ONEPIECE_ASSIGN_OR_RETURN(const bool row, select.Next());
  if (!row) return Damaged(database.path(), "it does not say whose it is");
  if (const std::string cluster = select.Text(0); cluster != options.cluster_id) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "OTHER_CLUSTER",
                           absl::StrCat(database.path(), " belongs to cluster ", cluster,
                                        ", this is a database of cluster ", options.cluster_id,
                                        ": give it another data_dir, or move that one away"));
  }
  return absl::OkStatus();
}

// Returns NOT_FOUND when there is no file yet.
absl::StatusOr<std::unique_ptr<sqlite::Database>> OpenExisting(
    const std::string& path, const TablesOptions& options,
    absl::FunctionRef<absl::Status(sqlite::Database&)> load) {
  std::error_code error;
  if (const auto bytes = fs::file_size(path, error); error || bytes == 0)
    return absl::NotFoundError("no tables");
  ONEPIECE_ASSIGN_OR_RETURN(
      std::unique_ptr<sqlite::Database> database,
      sqlite::Database::Open(path, {.mode = sqlite::OpenMode::kWrite}, ExplainFor(path)));
  // Nothing is written to a file that may not be ours.
  database->FoldOnClose(false);
  ONEPIECE_RETURN_IF_ERROR(database->Execute("PRAGMA locking_mode=EXCLUSIVE"));
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t tables,
                            database->Number("SELECT count(*) FROM sqlite_master"));
  // The process that created the file was killed before its commit.
  if (tables == 0) return absl::NotFoundError("no tables");
  // This check comes before those for damage. Otherwise damage would set another cluster's file
  // aside, although that file must stay as it is.
  ONEPIECE_RETURN_IF_ERROR(CheckOwner(*database, options));
  {
    ONEPIECE_ASSIGN_OR_RETURN(sqlite::Statement check, database->Prepare("PRAGMA quick_check(1)"));
    ONEPIECE_ASSIGN_OR_RETURN(const bool row, check.Next());
    if (const std::string answer = row ? check.Text(0) : "no answer"; answer != "ok")
      return Damaged(path, answer);
  }
  ONEPIECE_RETURN_IF_ERROR(load(*database));
  database->FoldOnClose(true);
  ONEPIECE_RETURN_IF_ERROR(database->Execute(kPragmas));
  return database;
}

void RemoveSideFiles(const std::string& path) {
  std::error_code error;
  for (const char* suffix : {"-wal", "-shm", "-journal"}) fs::remove(path + suffix, error);
}

}  // namespace

std::uint32_t RowChecksum(std::string_view uid, std::string_view rest) {
  return base::ExtendCrc32c(base::Crc32c(std::as_bytes(std::span(uid))),
                            std::as_bytes(std::span(rest)));
}

absl::Status DiskError(int number, std::string_view what, const std::string& path) {
  const std::string message = absl::StrCat(std::string(what), " ", path, ": ", strerror(number));
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return base::MakeError(absl::StatusCode::kResourceExhausted, "DISK_FULL", message);
    case EACCES:
    case EPERM:
    case EROFS:
      return base::MakeError(absl::StatusCode::kPermissionDenied, "PERMISSION_DENIED", message);
    default:
      return base::MakeError(absl::StatusCode::kUnavailable, "DISK_FAILED", message);
  }
}

absl::StatusOr<std::unique_ptr<DataFolder>> DataFolder::Open(const std::string& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  if (error) return DiskError(error.value(), "cannot make the folder", path);
  if (made) {
    fs::permissions(path, fs::perms::owner_all, error);
    // A new folder survives a power cut only when its parent folder has been synchronised too.
    (void)base::SyncFolderOf(
        path);  // The first file that is synchronised says when the disk fails.
  }
  // Prompts and results are in here.
  ONEPIECE_RETURN_IF_ERROR(identity::EnsureClosed(path));
  const std::string name = path + "/lock";
  const int lock = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return DiskError(errno, "cannot open", name);
  // The object owns the descriptor from here on, so a refused lock does not leak it.
  std::unique_ptr<DataFolder> result(new DataFolder(path, lock));
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "FOLDER_IN_USE",
                           absl::StrCat("another process uses ", path,
                                        ": every database needs a data_dir of its own"));
  }
  return result;
}

DataFolder::~DataFolder() { close(lock_); }

std::string DataFolder::File(std::string_view name) const {
  return absl::StrCat(path_, "/", std::string(name));
}

absl::Status DataFolder::Sync() const {
  return base::SyncFolder(path_) ? absl::OkStatus() : DiskError(errno, "cannot synchronise", path_);
}

absl::StatusOr<std::unique_ptr<sqlite::Database>> OpenTables(
    const DataFolder& folder, const TablesOptions& options,
    absl::FunctionRef<absl::Status(sqlite::Database&)> load,
    absl::FunctionRef<absl::Status()> may_make, bool& made) {
  const std::string path = folder.File(options.name);
  made = false;
  auto opened = OpenExisting(path, options, load);
  const bool damaged = opened.status().code() == absl::StatusCode::kDataLoss;
  if (!damaged && opened.status().code() != absl::StatusCode::kNotFound) return opened;
  ONEPIECE_RETURN_IF_ERROR(may_make());
  if (damaged) {
    const std::string aside = path + ".damaged";
    spdlog::error("op=open {}; set aside as {}, and made anew",
                  base::View(opened.status().message()), aside);
    if (rename(path.c_str(), aside.c_str()) != 0) return DiskError(errno, "cannot rename", path);
  }
  // Side files of a database that is gone: SQLite would take them for the new file's.
  RemoveSideFiles(path);
  ONEPIECE_ASSIGN_OR_RETURN(
      std::unique_ptr<sqlite::Database> database,
      sqlite::Database::Open(path, {.mode = sqlite::OpenMode::kCreate}, ExplainFor(path)));
  ONEPIECE_RETURN_IF_ERROR(Make(*database, options));
  ONEPIECE_RETURN_IF_ERROR(folder.Sync());
  made = true;
  return database;
}

}  // namespace onepiece::database
