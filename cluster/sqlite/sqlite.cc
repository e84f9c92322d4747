#include "cluster/sqlite/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::sqlite {
namespace {

// Makes a URI of a path. It escapes the characters that would end or change the path.
std::string Escaped(const std::string& path) {
  std::string uri = path.starts_with('/') ? "file://" : "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      absl::StrAppend(&uri, "%", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      uri += c;
    }
  }
  return uri;
}

int FlagsOf(OpenMode mode) {
  constexpr int kAll = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX;
  switch (mode) {
    case OpenMode::kRead:
    case OpenMode::kReadFrozen:
      return kAll | SQLITE_OPEN_READONLY;
    case OpenMode::kWrite:
      return kAll | SQLITE_OPEN_READWRITE;
    case OpenMode::kCreate:
      break;
  }
  return kAll | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
}

}  // namespace

Statement::~Statement() { sqlite3_finalize(statement_); }

absl::StatusOr<bool> Statement::Next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  // Error() comes before the reset, which clears SQLite's error message.
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : database_->Error(code);
  Stop();
  if (!status.ok()) return status;
  return false;
}

absl::Status Statement::RunBound() {
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool more, Next());
    if (!more) return absl::OkStatus();
  }
}

absl::Status Statement::RunRow(const Statement& row) {
  Stop();
  for (int i = 0; i < sqlite3_column_count(row.statement_); ++i)
    sqlite3_bind_value(statement_, i + 1, sqlite3_column_value(row.statement_, i));
  return RunBound();
}

// The bindings are cleared because they point into borrowed memory.
void Statement::Stop() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

std::int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::string_view Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data), static_cast<std::size_t>(size)};
}

void Statement::Bind(int place, std::int64_t value) {
  sqlite3_bind_int64(statement_, place, value);
}

// An empty view may have a null pointer, which SQLite would bind as NULL.
void Statement::Bind(int place, std::string_view text) {
  sqlite3_bind_text64(statement_, place, text.empty() ? "" : text.data(), text.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
}

void Statement::Bind(int place, Blob blob) {
  sqlite3_bind_blob64(statement_, place, blob.bytes.empty() ? "" : blob.bytes.data(),
                      blob.bytes.size(), SQLITE_STATIC);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                         const OpenOptions& options,
                                                         Explain explain) {
  std::unique_ptr<Database> database(new Database(path, std::move(explain)));
  // SQLite would make it as wide as the umask lets it, and gives the files beside it the same mode.
  if (options.mode == OpenMode::kCreate) {
    const int made = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (made >= 0) close(made);  // Whatever is wrong, SQLite says it.
  }
  const std::string uri =
      Escaped(path) + (options.mode == OpenMode::kReadFrozen ? "?immutable=1" : "");
  const int code =
      sqlite3_open_v2(uri.c_str(), &database->connection_, FlagsOf(options.mode), nullptr);
  if (code != SQLITE_OK) return database->Error(code);
  sqlite3* connection = database->connection_;
  sqlite3_extended_result_codes(connection, 1);
  database->SetBusyWait(options.busy_wait);
  if (options.untrusted) {
    sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, options.max_value_bytes);
    sqlite3_db_config(connection, SQLITE_DBCONFIG_DEFENSIVE, options.damaged ? 0 : 1, nullptr);
    sqlite3_db_config(connection, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
    sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  }
  return database;
}

Database::~Database() { sqlite3_close(connection_); }

absl::Status Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(connection_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Statement> Database::Prepare(const std::string& sql) const {
  Statement statement;
  statement.database_ = this;
  const int code = sqlite3_prepare_v3(connection_, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT,
                                      &statement.statement_, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return statement;
}

absl::StatusOr<std::int64_t> Database::Number(const std::string& sql) const {
  ONEPIECE_ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ONEPIECE_ASSIGN_OR_RETURN(const bool found, statement.Next());
  return found ? statement.Int(0) : 0;
}

absl::Status Database::InTransaction(absl::FunctionRef<absl::Status()> write) {
  ONEPIECE_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  absl::Status status = write();
  if (status.ok()) status = Execute("COMMIT");
  // SQLite rolls back by itself after some errors. ROLLBACK then fails, which does no harm.
  if (!status.ok()) (void)Execute("ROLLBACK");
  return status;
}

void Database::SetBusyWait(std::chrono::milliseconds limit) {
  sqlite3_busy_timeout(connection_, static_cast<int>(limit.count()));
}

void Database::FoldOnClose(bool fold) {
  sqlite3_db_config(connection_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, fold ? 0 : 1, nullptr);
}

absl::Status Database::Checkpoint() {
  const int code =
      sqlite3_wal_checkpoint_v2(connection_, nullptr, SQLITE_CHECKPOINT_FULL, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::Status Database::Error(int code) const {
  std::string message = sqlite3_errmsg(connection_);
  if (code == SQLITE_IOERR_SHORT_READ) return explain_(Failure::kDamaged, "a page is cut off");
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return explain_(Failure::kBusy, message);
    case SQLITE_FULL:
      return explain_(Failure::kFull, message);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return explain_(Failure::kDenied, message);
    // The statements are right, so when one does not fit, the tables are not as their owner made
    // them.
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_CORRUPT:
    case SQLITE_TOOBIG:
    case SQLITE_NOTADB:
      return explain_(Failure::kDamaged, message);
    case SQLITE_CANTOPEN: {
      const int number = sqlite3_system_errno(connection_);
      if (number != 0) absl::StrAppend(&message, " (", strerror(number), ")");
      const bool denied = number == EACCES || number == EPERM || number == EROFS;
      return explain_(denied ? Failure::kDenied : Failure::kFailed, message);
    }
    default:
      return explain_(Failure::kFailed, message);
  }
}

absl::StatusOr<ReadView> ReadView::Begin(Database& database) {
  ONEPIECE_RETURN_IF_ERROR(database.Execute("BEGIN"));
  return ReadView(database);
}

ReadView::~ReadView() {
  if (database_ == nullptr) return;
  // An error may have left a walk open. It would keep the view open beyond COMMIT.
  sqlite3* connection = database_->connection_;
  for (auto* each = sqlite3_next_stmt(connection, nullptr); each != nullptr;
       each = sqlite3_next_stmt(connection, each)) {
    if (sqlite3_stmt_busy(each) != 0) sqlite3_reset(each);
  }
  (void)database_->Execute("COMMIT");
}

}  // namespace onepiece::sqlite
