// The little of SQLite that Store needs: statements prepared once, and errors that say what to do.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onepiece::nodemanager {

class Database;

/// Ownership  Must go before its Database.
/// Threading  Thread-confined.
class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept { *this = std::move(other); }
  Statement& operator=(Statement&& other) noexcept {
    std::swap(database_, other.database_);
    std::swap(statement_, other.statement_);
    return *this;
  }
  ~Statement() { sqlite3_finalize(statement_); }

  /// Binds the values to ?1, ?2, …, runs to the end, and is ready to run again. Blobs are borrowed
  /// for the call.
  template <typename... Values>
  absl::Status Run(const Values&... values) {
    int place = 0;
    (Bind(++place, values), ...);
    return RunBound();
  }
  /// True: there is a row; the getters below read it, until the next call.
  absl::StatusOr<bool> Next();
  [[nodiscard]] std::uint64_t Integer(int column) const {
    return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column));
  }
  [[nodiscard]] std::string Blob(int column) const;

 private:
  friend class Database;
  void Bind(int place, std::uint64_t value) {
    sqlite3_bind_int64(statement_, place, static_cast<sqlite3_int64>(value));
  }
  void Bind(int place, std::string_view bytes) {
    sqlite3_bind_blob64(statement_, place, bytes.data(), bytes.size(), SQLITE_STATIC);
  }
  absl::Status RunBound();

  const Database* database_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

/// DIR/nodemanager.sqlite, locked for this process alone.
///
/// Threading  Thread-confined.
/// Errors     As Store: DATABASE_CORRUPT, DATA_DIR_IN_USE, DISK_FULL, DATABASE_FAILED.
class Database {
 public:
  /// Opens or creates it: WAL, synchronous=FULL. Nothing has been checked yet, and until Trust()
  /// nothing on the disk is moved: what is damaged stays as it was found.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& dir);
  ~Database();

  /// What was read is right: makes it durable, by folding the write-ahead log into the database. (A
  /// process that was killed, or whose sync failed, leaves data that can be read and that a power
  /// cut takes away.) From here on closing folds as well.
  absl::Status Trust();
  absl::Status Execute(const char* sql);
  absl::StatusOr<Statement> Prepare(const char* sql) const;
  [[nodiscard]] absl::Status Error(int code) const;
  [[nodiscard]] absl::Status Corrupt(std::string_view what) const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit Database(const std::string& dir) : dir_(dir), path_(dir + "/nodemanager.sqlite") {}

  const std::string dir_, path_;
  sqlite3* connection_ = nullptr;
};

}  // namespace onepiece::nodemanager
