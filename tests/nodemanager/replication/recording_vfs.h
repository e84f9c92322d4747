// A disk that records what SQLite writes, syncs, truncates and deletes. A test can make any crash
// in between from the record. The disk can also be full, or fail to sync.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace onepiece::nodemanager {

/// While it lives, it is SQLite's default VFS: the real one, with a record of what passes. There
/// must be only one at a time.
///
/// Threading: thread-confined.
class RecordingVfs {
 public:
  struct Event {
    enum class Kind { kCreate, kWrite, kTruncate, kSync, kDelete } kind;
    std::string file;          ///< The file's name without its folder.
    std::uint64_t offset = 0;  ///< After a truncation: the size that is left.
    std::string bytes;
  };
  /// The contents of files, by name without folder.
  using Files = std::map<std::string, std::string>;
  /// Says whether a change reached the disk. It is asked for every sector that was written and not
  /// synced, and for every change of a name.
  using Reached = std::function<bool()>;

  RecordingVfs();
  ~RecordingVfs();
  RecordingVfs(const RecordingVfs&) = delete;
  RecordingVfs& operator=(const RecordingVfs&) = delete;

  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  /// The files that a power cut after the first `count` of `events` leaves. If `synced` is false,
  /// the disk does nothing on a sync.
  static Files Crash(const std::vector<Event>& events, std::size_t count, const Reached& reached,
                     bool synced = true);

  /// Makes writes and syncs fail. `write` is the number of the first write (or truncation) from now
  /// on that fails with SQLITE_FULL, and `sync` that of the first sync that fails with
  /// SQLITE_IOERR_FSYNC, both counted from 0. All later ones fail too. A negative number lets none
  /// fail.
  void FailFrom(std::int64_t write, std::int64_t sync);

  // The functions that SQLite calls use these:
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
