// A disk that remembers: what SQLite writes, syncs, cuts and deletes is recorded, and any crash in
// between can be made from it. It can also be full, or fail to sync.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace onepiece::nodemanager {

/// While it lives, SQLite's default VFS: the real one, recorded. One at a time; one thread.
class RecordingVfs {
 public:
  struct Event {
    enum class Kind { kCreate, kWrite, kTruncate, kSync, kDelete } kind;
    std::string file;          ///< Without its folder.
    std::uint64_t offset = 0;  ///< Of a truncation: the size that is left.
    std::string bytes;
  };
  /// Files by name, without their folder.
  using Files = std::map<std::string, std::string>;
  /// Asked for every sector that was written and not synced, and every change of a name: did it
  /// reach the disk?
  using Reached = std::function<bool()>;

  RecordingVfs();
  ~RecordingVfs();
  RecordingVfs(const RecordingVfs&) = delete;
  RecordingVfs& operator=(const RecordingVfs&) = delete;

  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  /// The files as a power cut after the first `count` of `events` leaves them. `synced` false: a
  /// disk that takes a sync for a suggestion.
  static Files Crash(const std::vector<Event>& events, std::size_t count, const Reached& reached,
                     bool synced = true);

  /// From now on, the write (or truncation) and the sync of this number, counted from 0, and all
  /// after it fail: SQLITE_FULL, SQLITE_IOERR_FSYNC. Negative: none.
  void FailFrom(std::int64_t write, std::int64_t sync);

  // For the functions that SQLite calls.
  sqlite3_vfs* real() { return real_; }
  void Record(Event event) { events_.push_back(std::move(event)); }
  bool NextWriteFails() {
    return fail_write_ >= 0 && fail_write_-- == 0 ? ++fail_write_, true : false;
  }
  bool NextSyncFails() { return fail_sync_ >= 0 && fail_sync_-- == 0 ? ++fail_sync_, true : false; }

 private:
  sqlite3_vfs* real_;
  sqlite3_vfs vfs_;
  std::vector<Event> events_;
  std::int64_t fail_write_ = -1, fail_sync_ = -1;
};

}  // namespace onepiece::nodemanager
