#include "nodemanager/state/local_log.h"

#include <spdlog/spdlog.h>
#include <sqlite3.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cluster/base/crc32c.h"

namespace onepiece::nodemanager {
namespace {

constexpr int kFormat = 1;

// A prepared statement, finalised at the end of its scope.
class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    code_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void BindInteger(int column, std::uint64_t value) {
    if (code_ == SQLITE_OK)
      code_ = sqlite3_bind_int64(statement_, column, static_cast<sqlite3_int64>(value));
  }
  void BindBlob(int column, const std::string& bytes) {
    if (code_ == SQLITE_OK)
      code_ = sqlite3_bind_blob64(statement_, column, bytes.data(), bytes.size(), SQLITE_STATIC);
  }
  // SQLITE_ROW, SQLITE_DONE, or the first error of this statement.
  int Step() {
    if (code_ == SQLITE_OK || code_ == SQLITE_ROW) code_ = sqlite3_step(statement_);
    return code_;
  }
  [[nodiscard]] std::uint64_t Integer(int column) const {
    return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column));
  }
  [[nodiscard]] std::string Blob(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    const int size = sqlite3_column_bytes(statement_, column);
    return data == nullptr
               ? std::string()
               : std::string(static_cast<const char*>(data), static_cast<std::size_t>(size));
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

// Covers the index as well, so that an entry in the wrong place is noticed.
std::uint32_t Checksum(std::uint64_t index, const std::string& bytes) {
  const std::string place = absl::StrCat(index, ":");
  return base::ExtendCrc32c(base::Crc32c(std::as_bytes(std::span(place))),
                            std::as_bytes(std::span(bytes)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalLog>> LocalLog::Open(const std::string& dir, Options options) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    return base::MakeError(absl::StatusCode::kUnavailable, "DATABASE_FAILED",
                           absl::StrCat("cannot make the folder ", dir, ": ", error.message()));
  }
  std::unique_ptr<LocalLog> log(new LocalLog(dir + "/nodemanager.sqlite", options));
  ONEPIECE_RETURN_IF_ERROR(log->OpenDatabase());
  ONEPIECE_RETURN_IF_ERROR(log->Load());
  return log;
}

LocalLog::~LocalLog() { sqlite3_close(database_); }

absl::Status LocalLog::DatabaseError(int code) const {
  const std::string message = absl::StrCat(path_, ": ", sqlite3_errmsg(database_));
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "DATA_DIR_IN_USE",
                             absl::StrCat(path_, " is in use by another process"));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Corrupt(sqlite3_errmsg(database_));
    case SQLITE_FULL:
      return base::MakeError(absl::StatusCode::kUnavailable, "DISK_FULL", message);
    default:
      return base::MakeError(absl::StatusCode::kUnavailable, "DATABASE_FAILED", message);
  }
}

absl::Status LocalLog::Corrupt(std::string_view what) const {
  return base::MakeError(
      absl::StatusCode::kDataLoss, "DATABASE_CORRUPT",
      absl::StrCat(path_, " is damaged (", std::string(what),
                   "); restore it from a copy, or move it away to begin with an empty cluster"));
}

absl::Status LocalLog::Execute(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : DatabaseError(code);
}

absl::Status LocalLog::OpenDatabase() {
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (const int code = sqlite3_open_v2(path_.c_str(), &database_, flags, nullptr);
      code != SQLITE_OK) {
    return DatabaseError(code);
  }
  // EXCLUSIVE keeps a second NodeManager out for as long as this one lives.
  ONEPIECE_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
  ONEPIECE_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  ONEPIECE_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
  ONEPIECE_RETURN_IF_ERROR(Execute("BEGIN EXCLUSIVE"));
  ONEPIECE_RETURN_IF_ERROR(
      Execute("CREATE TABLE IF NOT EXISTS format (version INTEGER NOT NULL);"
              "INSERT INTO format SELECT 1 WHERE NOT EXISTS (SELECT * FROM format);"
              "CREATE TABLE IF NOT EXISTS log (idx INTEGER PRIMARY KEY, command BLOB NOT NULL, "
              "checksum INTEGER NOT NULL);"
              "CREATE TABLE IF NOT EXISTS snapshot (idx INTEGER PRIMARY KEY, state BLOB NOT NULL, "
              "checksum INTEGER NOT NULL);"));
  return Execute("COMMIT");
}

absl::Status LocalLog::Load() {
  {
    Statement check(database_, "PRAGMA quick_check(1)");
    if (const int code = check.Step(); code != SQLITE_ROW) return DatabaseError(code);
    if (const std::string answer = check.Blob(0); answer != "ok") return Corrupt(answer);
  }
  {
    Statement version(database_, "SELECT version FROM format");
    if (const int code = version.Step(); code != SQLITE_ROW) return DatabaseError(code);
    if (version.Integer(0) != kFormat) {
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "DATABASE_VERSION",
                             absl::StrCat(path_, " has format ", version.Integer(0),
                                          ", this program reads ", kFormat));
    }
  }
  ONEPIECE_RETURN_IF_ERROR(LoadSnapshot());
  return Replay();
}

absl::Status LocalLog::LoadSnapshot() {
  Statement select(database_,
                   "SELECT idx, state, checksum FROM snapshot ORDER BY idx DESC LIMIT 1");
  const int code = select.Step();
  if (code == SQLITE_DONE) return absl::OkStatus();
  if (code != SQLITE_ROW) return DatabaseError(code);
  snapshot_index_ = select.Integer(0);
  const std::string state = select.Blob(1);
  if (Checksum(snapshot_index_, state) != select.Integer(2))
    return Corrupt("checksum of the snapshot");
  if (!machine_.Restore(state).ok() || machine_.applied_index() != snapshot_index_) {
    return Corrupt("content of the snapshot");
  }
  return absl::OkStatus();
}

absl::Status LocalLog::Replay() {
  Statement select(database_, "SELECT idx, command, checksum FROM log ORDER BY idx");
  int code = select.Step();
  for (; code == SQLITE_ROW; code = select.Step()) {
    const std::uint64_t index = select.Integer(0);
    const std::string bytes = select.Blob(1);
    if (Checksum(index, bytes) != select.Integer(2))
      return Corrupt(absl::StrCat("checksum of log entry ", index));
    if (index != machine_.applied_index() + 1) {
      return Corrupt(
          absl::StrCat("log entry ", index, " follows entry ", machine_.applied_index()));
    }
    v1::Command command;
    if (!command.ParseFromString(bytes))
      return Corrupt(absl::StrCat("content of log entry ", index));
    machine_.Apply(index, command);
  }
  return code == SQLITE_DONE ? absl::OkStatus() : DatabaseError(code);
}

absl::Status LocalLog::Append(std::uint64_t index, const std::string& bytes) {
  Statement insert(database_, "INSERT INTO log (idx, command, checksum) VALUES (?, ?, ?)");
  insert.BindInteger(1, index);
  insert.BindBlob(2, bytes);
  insert.BindInteger(3, Checksum(index, bytes));
  const int code = insert.Step();
  if (code == SQLITE_DONE) return absl::OkStatus();
  // A full disk is rolled back by SQLite; after any other failure nobody knows whether the entry is
  // durable.
  if ((code & 0xff) != SQLITE_FULL) broken_ = true;
  return DatabaseError(code);
}

absl::StatusOr<v1::CommandResult> LocalLog::Propose(const v1::Command& command) {
  const std::string bytes = SerializeDeterministically(command);
  const std::lock_guard lock(mutex_);
  if (broken_) {
    return base::MakeError(absl::StatusCode::kUnavailable, "LOG_BROKEN",
                           "an earlier write to the log failed; the NodeManager must be restarted");
  }
  const std::uint64_t index = machine_.applied_index() + 1;
  ONEPIECE_RETURN_IF_ERROR(Append(index, bytes));
  v1::CommandResult result = machine_.Apply(index, command);
  if (index - snapshot_index_ >= options_.snapshot_every) {
    // The command itself is durable: a failed snapshot is tried again after the next one.
    if (const absl::Status status = WriteSnapshot(); !status.ok()) {
      spdlog::warn("op=snapshot index={} error=\"{}\"", index, base::Message(status));
    }
  }
  return result;
}

absl::Status LocalLog::WriteSnapshot() {
  const std::uint64_t index = machine_.applied_index();
  const std::string state = machine_.Serialize();
  ONEPIECE_RETURN_IF_ERROR(Execute("BEGIN"));
  int code = SQLITE_DONE;
  {
    Statement insert(database_, "INSERT INTO snapshot (idx, state, checksum) VALUES (?, ?, ?)");
    insert.BindInteger(1, index);
    insert.BindBlob(2, state);
    insert.BindInteger(3, Checksum(index, state));
    code = insert.Step();
  }
  for (const char* sql : {"DELETE FROM snapshot WHERE idx < ?", "DELETE FROM log WHERE idx <= ?"}) {
    if (code != SQLITE_DONE) break;
    Statement prune(database_, sql);
    prune.BindInteger(1, index);
    code = prune.Step();
  }
  absl::Status status = code == SQLITE_DONE ? Execute("COMMIT") : DatabaseError(code);
  if (!status.ok()) {
    if (sqlite3_get_autocommit(database_) == 0) (void)Execute("ROLLBACK");
    return status;
  }
  snapshot_index_ = index;
  return absl::OkStatus();
}

void LocalLog::Read(const std::function<void(const StateMachine&)>& read) const {
  const std::lock_guard lock(mutex_);
  read(machine_);
}

}  // namespace onepiece::nodemanager
