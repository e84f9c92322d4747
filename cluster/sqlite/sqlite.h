// The little of SQLite that we need: connections, statements prepared once, transactions, and
// errors in the words of whoever owns the file.
//
// Ownership  A Statement and a ReadView must go before their Database.
// Threading  Thread-confined, statements too.
// Blocking   Disk; of a file that another process has locked, Options::busy_wait.
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
  kBusy,     ///< Another connection has it locked.
  kFull,     ///< The disk, or the file's limit.
  kDenied,   ///< We may not read or write it.
  kDamaged,  ///< It is no database, a page is wrong, or its tables are not as its owner made them.
  kFailed,   ///< Anything else, input and output above all.
};
/// What the owner of a file says of a failure; `what` does not name the file.
using Explain = std::function<absl::Status(Failure failure, std::string_view what)>;

/// Bound as a blob; a string_view alone is text.
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

  /// Binds the values (std::int64_t, std::uint64_t, text, Blob) to ?1, ?2, …; Next() walks the
  /// rows. Text and blobs are borrowed until the walk ends.
  template <typename... Values>
  Statement& Start(const Values&... values) {
    Stop();
    int place = 0;
    (Bind(++place, values), ...);
    return *this;
  }
  /// False: no more rows, and the statement is ready for another start.
  absl::StatusOr<bool> Next();
  /// Start, and to the end; rows are not looked at.
  template <typename... Values>
  absl::Status Run(const Values&... values) {
    return Start(values...).RunBound();
  }
  /// With the columns of another statement's row for values.
  absl::Status RunRow(const Statement& row);
  /// Ends a walk before its end: an open one keeps the file from being changed by others.
  void Stop();

  // Of the row; columns from 0.
  [[nodiscard]] std::int64_t Int(int column) const;
  [[nodiscard]] std::uint64_t Unsigned(int column) const {
    return static_cast<std::uint64_t>(Int(column));
  }
  [[nodiscard]] bool IsNull(int column) const;
  /// Text or blob; valid until the next call.
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

enum class Mode {
  kRead,
  kReadFrozen,  ///< Nobody writes it: no locks, and nothing is put beside it.
  kWrite,
  kCreate,  ///< Or write.
};

struct Options {
  Mode mode = Mode::kRead;
  std::chrono::milliseconds busy_wait{0};
  /// It may come from anybody: triggers and views are not run, the schema is not changed, and no
  /// value is longer than `max_value_bytes`.
  bool untrusted = false;
  /// Of an untrusted one: `PRAGMA writable_schema` works, to look at what is left of a damaged one.
  bool damaged = false;
  int max_value_bytes = 64 << 20;
};

class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path,
                                                        const Options& options, Explain explain);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// One statement or several.
  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql) const;
  /// The first column of the first row; 0 when there is none.
  absl::StatusOr<std::int64_t> Number(const std::string& sql) const;
  /// All of what `write` does, or nothing: an error of it or of the disk rolls back.
  absl::Status InTransaction(absl::FunctionRef<absl::Status()> write);

  void SetBusyWait(std::chrono::milliseconds limit);
  /// Whether the write-ahead log goes into the file when the last connection closes.
  void FoldOnClose(bool fold);
  /// Folds the write-ahead log into the file; durable when it returns.
  absl::Status Checkpoint();
  /// What a result code of SQLite means here.
  [[nodiscard]] absl::Status Error(int code) const;

 private:
  friend class ReadView;
  Database(std::string path, Explain explain)
      : path_(std::move(path)), explain_(std::move(explain)) {}

  const std::string path_;
  const Explain explain_;
  sqlite3* connection_ = nullptr;
};

/// All that is read while it lives is of one moment, though others write.
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
