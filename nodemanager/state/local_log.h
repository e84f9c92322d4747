// A Log of one replica, durable in SQLite.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "nodemanager/state/log.h"

struct sqlite3;

namespace onepiece::nodemanager {

/// Writes each command to DIR/nodemanager.sqlite (WAL, synchronous=FULL) before applying it. A
/// snapshot every `snapshot_every` commands replaces the log before it.
///
/// Ownership  Owns the database and the state machine.
/// Threading  Thread-safe. Blocking: Propose() waits for fsync.
class LocalLog final : public Log {
 public:
  struct Options {
    std::uint64_t snapshot_every = 1024;
  };
  /// Opens or creates the database and replays it. Errors: FAILED_PRECONDITION (DATA_DIR_IN_USE)
  /// when another process has it, DATA_LOSS (DATABASE_CORRUPT) when a checksum or the order of
  /// entries is wrong, UNAVAILABLE (DATABASE_FAILED) when the file cannot be opened or written.
  static absl::StatusOr<std::unique_ptr<LocalLog>> Open(const std::string& dir, Options options);
  static absl::StatusOr<std::unique_ptr<LocalLog>> Open(const std::string& dir) {
    return Open(dir, Options());
  }
  ~LocalLog() override;

  absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) override;
  void Read(const std::function<void(const StateMachine&)>& read) const override;

 private:
  LocalLog(std::string path, Options options) : path_(std::move(path)), options_(options) {}
  absl::Status OpenDatabase();
  absl::Status Load();
  absl::Status LoadSnapshot();
  absl::Status Replay();
  absl::Status Execute(const char* sql);
  absl::Status Append(std::uint64_t index, const std::string& bytes);
  absl::Status WriteSnapshot();
  absl::Status DatabaseError(int code) const;
  absl::Status Corrupt(std::string_view what) const;

  const std::string path_;
  const Options options_;
  mutable std::mutex mutex_;
  sqlite3* database_ = nullptr;  // Guarded by mutex_, like all below.
  std::uint64_t snapshot_index_ = 0;
  bool broken_ = false;  // A write failed in a way that leaves open what is on disk.
  StateMachine machine_;
};

}  // namespace onepiece::nodemanager
