// A thin wrapper around SQLite: connections, prepared statements, transactions, and errors in the
// words of the file's owner.
//
// Ownership: a Statement and a ReadView must be destroyed before their Database.
// Threading: a Database, its statements and its views belong to one thread at a time.
// Blocking: calls wait for the disk, and for OpenOptions::busy_wait while another process has the
// file locked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace onepiece::sqlite {

enum class Failure {
  kBusy,    ///< Another connection has locked the file.
  kFull,    ///< The disk is full, or the file has reached its limit.
  kDenied,  ///< This process may not read or write the file.
  /// The file is no database, a page is wrong, or its tables are not as its owner made them.
  kDamaged,
  kFailed,  ///< Anything else, in particular input and output errors.
};
/// Turns a failure into the status that the file's owner returns. `what` does not name the file.
using Explain = std::function<absl::Status(Failure failure, std::string_view what)>;

/// Marks bytes that are bound as a blob. A plain string_view is bound as text.
struct Blob {
  std::string_view bytes;
};

class Database;

class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept { *this = std::move(other); }
  Statement& operator=(Statement&& other) noexcept {
    std::swap(database_, other.database_);
    std::swap(statement_, other.statement_);
    return *this;
  }
  ~Statement();

  /// Binds the values (std::int64_t, std::uint64_t, text, Blob) to ?1, ?2, …, and begins a walk
  /// over the rows, which Next() continues.
  ///
  /// Ownership: borrows text and blobs until the walk ends.
  template <typename... Values>
  Statement& Start(const Values&... values) {
    Stop();
    int place = 0;
    (Bind(++place, values), ...);
    return *this;
  }
  /// Goes to the next row. Returns false when there are no more rows. The statement is then ready
  /// for another Start().
  absl::StatusOr<bool> Next();
  /// Starts the statement and runs it to its end. It skips any rows.
  template <typename... Values>
  absl::Status Run(const Values&... values) {
    return Start(values...).RunBound();
  }
  /// Does the same with the columns of another statement's row as values.
  absl::Status RunRow(const Statement& row);
  /// Stops a walk before its end. An open walk keeps other connections from changing the file.
  void Stop();

  // These read the row. Columns count from 0.
  [[nodiscard]] std::int64_t Int(int column) const;
  [[nodiscard]] std::uint64_t Unsigned(int column) const {
    return static_cast<std::uint64_t>(Int(column));
  }
  [[nodiscard]] bool IsNull(int column) const;
  /// Returns text or a blob, valid until the next call.
  [[nodiscard]] std::string_view Bytes(int column) const;
  [[nodiscard]] std::string Text(int column) const { return std::string(Bytes(column)); }

 private:
  friend class Database;
  void Bind(int place, std::int64_t value);
  void Bind(int place, std::uint64_t value) { Bind(place, static_cast<std::int64_t>(value)); }
  void Bind(int place, std::string_view text);
  void Bind(int place, Blob blob);
  absl::Status RunBound();

  const Database* database_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

enum class OpenMode {
  kRead,
  kReadFrozen,  ///< For a file that nobody writes: takes no locks and makes no files beside it.
  kWrite,
  kCreate,  ///< Creates the file if it is missing, and writes.
};

struct OpenOptions {
  OpenMode mode = OpenMode::kRead;
  std::chrono::milliseconds busy_wait{0};
  /// The file may come from anybody. Triggers and views are not run, the schema is not changed, and
  /// no value is longer than `max_value_bytes`.
  bool untrusted = false;
  /// For an untrusted file: allows `PRAGMA writable_schema`, to look at what is left of a damaged
  /// file.
  bool damaged = false;
  int max_value_bytes = 64 << 20;
};

class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const OpenOptions& options,
                                                        Explain explain);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Runs one or more statements.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql) const;
  /// Returns the first column of the first row, or 0 when there is no row.
  absl::StatusOr<std::int64_t> Number(const std::string& sql) const;
  /// Commits all that `write` does, or nothing. An error of `write` or of the disk rolls back.
  absl::Status InTransaction(absl::FunctionRef<absl::Status()> write);

  void SetBusyWait(std::chrono::milliseconds limit);
  /// Decides whether the write-ahead log is folded into the file when the last connection closes.
  void FoldOnClose(bool fold);
  /// Folds the write-ahead log into the file. The content is durable when this returns.
  absl::Status Checkpoint();
  /// Turns a result code of SQLite into a status, in the words of the file's owner.
  [[nodiscard]] absl::Status Error(int code) const;

 private:
  friend class ReadView;
  Database(std::string path, Explain explain)
      : path_(std::move(path)), explain_(std::move(explain)) {}

  const std::string path_;
  const Explain explain_;
  sqlite3* connection_ = nullptr;
};

/// While it lives, the Database reads the content of one moment, although others write.
class ReadView {
 public:
  static absl::StatusOr<ReadView> Begin(Database& database);
  ReadView(ReadView&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  ReadView& operator=(ReadView&&) = delete;
  ~ReadView();

 private:
  explicit ReadView(Database& database) : database_(&database) {}
  Database* database_;
};

}  // namespace onepiece::sqlite
