// The journal: job records in SQLite, written in groups behind the store. After a restart they let
// a database tell a lost result from one that never existed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

/// Returns /proc/sys/kernel/random/boot_id; empty when it cannot be read.
std::string KernelBootId();

struct JournalOptions {
  std::string folder;
  std::string cluster_id;
  /// Names the run of the operating system, within which the monotonic clock goes on from process
  /// to process. By default the kernel's.
  std::string boot_id = KernelBootId();
  /// A record is on disk at most this long after Note, plus the time of one write.
  base::Duration delay = std::chrono::milliseconds(50);
};

struct JournalStats {
  std::int64_t records = 0;
  std::uint64_t written = 0, failed = 0;
  std::int64_t waiting = 0;
};

/// A row of the journal's table as it lies on disk.
struct JournalRow {
  std::string_view key, bytes;  ///< The uid as KeyOf returns it, and the record.
  std::uint64_t checksum = 0;   ///< The RowChecksum of both.
};
/// Returns nullopt for a damaged row.
std::optional<v1::JobRecord> ReadJournalRow(const JournalRow& row);
/// Takes the time since the record was noted from its time_left, if this run of the operating
/// system has noted it, and takes away the stamp that says so.
void TakeElapsedTime(v1::JobRecord& record, std::string_view boot_id, base::MonotonicTime now);

/// Keeps the newest record of each job on disk. A crash loses what was noted during the last
/// `delay`, and nothing that was written before. The store notes a record when the job is made and
/// when it ends, not at every step.
///
/// Threading: thread-safe.
/// Blocking: Note and Forget never wait for the disk. At most kMaxWaiting uids wait, each with its
/// newest record. Destruction writes the rest, for 2 s at most.
class Journal {
 public:
  static constexpr std::size_t kMaxWaiting = 100'000;

  /// Errors: those of Spill::Open.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(JournalOptions options,
                                                       base::Clock& clock = base::SystemClock());
  virtual ~Journal() = default;

  /// Returns every record of earlier runs, as last noted. The first call returns them, later calls
  /// none. Damaged records are left out; the log says how many. A record's time_left is less by the
  /// time since it was noted. Over a restart of the operating system nobody knows that time, so
  /// there it is what it was when the record was noted.
  [[nodiscard]] virtual std::vector<v1::JobRecord> Recover() = 0;
  virtual void Note(const v1::JobRecord& record) = 0;
  virtual void Forget(const base::Uid& uid) = 0;
  /// Waits until everything that was noted is on disk. Returns false when `deadline` passes first.
  virtual bool Flush(base::MonotonicTime deadline) = 0;
  [[nodiscard]] virtual JournalStats stats() const = 0;

 protected:
  Journal() = default;
};

}  // namespace onepiece::database
