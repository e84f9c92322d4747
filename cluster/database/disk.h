// The disk of a database: the journal, spilled results, and the thread that spills.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/database/journal.h"
#include "cluster/database/spill.h"

namespace onepiece::database {

struct DiskOptions {
  std::string folder;  ///< Empty: nothing is kept.
  bool spill = false;  ///< When memory is full, the oldest results move to files.
  std::int64_t spill_budget_bytes = std::int64_t{8} << 30;
};

struct DiskStats {
  JournalStats journal;
  SpillStats spill;
};

/// Keeps records in a journal and spills results to files. It spills when more than 90 % of the
/// store's budget is used, until 80 % is used, and when a result finds no room. Before Open, and
/// without a folder, all methods do nothing.
///
/// Ownership: borrows the clock, and the store between Open and Stop.
/// Threading: thread-safe. It has a thread of its own.
/// Blocking: Note, Forget and Served never wait, because they run under the store's locks. Open
/// reads all spilled results. Stop waits for the file that is being written, and for the journal.
class Disk {
 public:
  Disk(DiskOptions options, base::Clock& clock);
  ~Disk();  ///< Stop().
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // Call these from the store's hooks.
  void Note(const v1::JobRecord& record);
  void Forget(const base::Uid& uid);
  void Served(const base::Uid& uid, const Artifacts* artifacts);

  /// Loads what earlier runs left into `store`, and begins to keep records and results. Call it
  /// once.
  ///
  /// Errors: those of Journal::Open and Spill::Open.
  absl::Status Open(const std::string& cluster_id, JobStore& store);
  void Stop();
  /// Moves a result out of memory. Returns false when there is none to move, when the files have no
  /// room, or when `deadline` passed.
  bool MakeRoom(base::MonotonicTime deadline);

  [[nodiscard]] bool spills() const { return options_.spill && !options_.folder.empty(); }
  [[nodiscard]] std::int64_t spill_budget_bytes() const {
    return spills() ? spill_budget_bytes_.load() : 0;
  }
  /// Sets DiskOptions::spill_budget_bytes. Files beyond a lower budget stay.
  void SetSpillBudget(std::int64_t bytes);
  [[nodiscard]] DiskStats stats() const;

 private:
  void Run(const std::stop_token& stop);
  bool Relieve(bool asked, const std::stop_token& stop);
  bool MoveOldest(const std::stop_token& stop);

  const DiskOptions options_;
  base::Clock& clock_;
  std::atomic<std::int64_t> spill_budget_bytes_;
  // Set by Open, then left alone.
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Spill> spill_;
  JobStore* store_ = nullptr;
  std::atomic<bool> open_{false};

  mutable base::Mutex mutex_;  // Never held while the disk or the store works.
  base::CondVar changed_;
  // Results that have a file, or are getting one.
  std::unordered_set<base::Uid> spilled_ ABSL_GUARDED_BY(mutex_);
  // Results whose files must be removed.
  std::vector<base::Uid> gone_ ABSL_GUARDED_BY(mutex_);
  // Numbers of the last MakeRoom call and of the last one that was answered.
  std::uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t answered_ ABSL_GUARDED_BY(mutex_) = 0;
  // The answer to the last answered call.
  bool moved_ ABSL_GUARDED_BY(mutex_) = false;
  std::stop_source stopping_;
  std::jthread thread_;
};

}  // namespace onepiece::database
