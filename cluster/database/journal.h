// What a database must know of its jobs after a restart, to tell a lost result from one that never
// was: records in SQLite, written behind the store in groups.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct JournalOptions {
  std::string folder;
  std::string cluster_id;
  /// A record is on disk at most so long after Note (and one write).
  base::Duration delay = std::chrono::milliseconds(50);
};

struct JournalStats {
  std::int64_t records = 0;
  std::uint64_t written = 0, failed = 0;
  std::int64_t waiting = 0;
};

/// A crash loses what was noted in the last `delay`; never what was written before. The store notes
/// a record when it is made and when it ends, not every step.
///
/// Threading: Thread-safe.
/// Blocking: Note and Forget never wait for the disk; at most kMaxWaiting uids wait, each with its
/// newest record. Close writes the rest, 2 s at most.
class Journal {
 public:
  static constexpr std::size_t kMaxWaiting = 100'000;

  /// Errors: as Spill::Open.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(JournalOptions options,
                                                       base::Clock& clock = base::SystemClock());
  virtual ~Journal() = default;

  /// Every record of earlier runs, as last noted. Damaged ones are left out and counted in the log.
  [[nodiscard]] virtual std::vector<v1::JobRecord> Recover() = 0;
  virtual void Note(const v1::JobRecord& record) = 0;
  virtual void Forget(const base::Uid& uid) = 0;
  /// Waits until all that was noted is on disk; false when `deadline` passes before.
  virtual bool Flush(base::MonotonicTime deadline) = 0;
  [[nodiscard]] virtual JournalStats stats() const = 0;

 protected:
  Journal() = default;
};

}  // namespace onepiece::database
