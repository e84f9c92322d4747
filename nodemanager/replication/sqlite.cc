#include "nodemanager/replication/sqlite.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {

absl::Status Statement::RunBound() {
  int code = SQLITE_ROW;
  while (code == SQLITE_ROW) code = sqlite3_step(statement_);
  // The message of an error is gone after the reset.
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : database_->Error(code);
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
  return status;
}

absl::StatusOr<bool> Statement::Next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->Error(code);
}

std::string Statement::Blob(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr
             ? std::string()
             : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& dir) {
  std::unique_ptr<Database> database(new Database(dir));
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (const int code =
          sqlite3_open_v2(database->path_.c_str(), &database->connection_, flags, nullptr);
      code != SQLITE_OK) {
    return database->Error(code);
  }
  sqlite3_extended_result_codes(database->connection_, 1);
  sqlite3_db_config(database->connection_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  // EXCLUSIVE keeps a second NodeManager out for as long as this one lives. Overwriting what is
  // deleted (Debian's default) would only write more.
  for (const char* sql :
       {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
        "PRAGMA secure_delete=OFF", "BEGIN EXCLUSIVE", "COMMIT"}) {
    ONEPIECE_RETURN_IF_ERROR(database->Execute(sql));
  }
  return database;
}

Database::~Database() { sqlite3_close(connection_); }

absl::Status Database::Trust() {
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
  const int code =
      sqlite3_wal_checkpoint_v2(connection_, nullptr, SQLITE_CHECKPOINT_FULL, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::Status Database::Execute(const char* sql) {
  const int code = sqlite3_exec(connection_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Statement> Database::Prepare(const char* sql) const {
  Statement statement;
  statement.database_ = this;
  const int code = sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                      &statement.statement_, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return statement;
}

absl::Status Database::Error(int code) const {
  const std::string message = absl::StrCat(path_, ": ", sqlite3_errmsg(connection_));
  if (code == SQLITE_IOERR_SHORT_READ) return Corrupt("a page is cut off");
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "DATA_DIR_IN_USE",
                             absl::StrCat(path_, " is in use by another process"));
    case SQLITE_FULL:
      return base::MakeError(absl::StatusCode::kUnavailable, "DISK_FULL", message);
    // Our statements are right: when one does not fit, the tables are not as we made them.
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Corrupt(sqlite3_errmsg(connection_));
    default:
      return base::MakeError(absl::StatusCode::kUnavailable, "DATABASE_FAILED", message);
  }
}

absl::Status Database::Corrupt(std::string_view what) const {
  return base::MakeError(
      absl::StatusCode::kDataLoss, "DATABASE_CORRUPT",
      absl::StrCat(path_, " is damaged (", std::string(what), "). Move the folder ", dir_,
                   " away and start again: the replica comes back as a new one, without a vote, "
                   "and its peers feed it. When it is the only replica, restore a copy instead"));
}

}  // namespace onepiece::nodemanager
