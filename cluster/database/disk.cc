#include "cluster/database/disk.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/database/recovery.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

/// How often the thread checks the memory while nobody asks for room.
constexpr base::Duration kLook = 100ms;
/// Pause after a file could not be written.
constexpr base::Duration kSpillRetryPause = 1s;

}  // namespace

Disk::Disk(DiskOptions options, base::Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      spill_budget_bytes_(options_.spill_budget_bytes) {}

Disk::~Disk() { Stop(); }

void Disk::Note(const v1::JobRecord& record) {
  if (open_) journal_->Note(record);
}

void Disk::Forget(const base::Uid& uid) {
  if (open_) journal_->Forget(uid);
}

void Disk::Served(const base::Uid& uid, const Artifacts* artifacts) {
  if (artifacts != nullptr || !spills()) return;
  const base::MutexLock lock(mutex_);
  if (spilled_.erase(uid) == 0) return;
  gone_.push_back(uid);
  changed_.NotifyAll();
}

absl::Status Disk::Open(const std::string& cluster_id, JobStore& store) {
  if (options_.folder.empty()) return absl::OkStatus();
  ONEPIECE_ASSIGN_OR_RETURN(
      journal_, Journal::Open({.folder = options_.folder, .cluster_id = cluster_id}, clock_));
  std::unordered_set<base::Uid> kept;
  if (spills()) {
    ONEPIECE_ASSIGN_OR_RETURN(spill_, Spill::Open({.folder = options_.folder + "/results",
                                                   .cluster_id = cluster_id,
                                                   .budget_bytes = options_.spill_budget_bytes}));
    const std::vector<base::Uid> files = spill_->Kept();
    const base::MutexLock lock(mutex_);
    spilled_.insert(files.begin(), files.end());
    kept = spilled_;
  }
  // Recover() needs working hooks. Through them the store drops files that it does not want, and
  // the journal forgets tombstones that were evicted. open_ comes last, because hooks and stats()
  // use journal_ once they see it.
  store_ = &store;
  open_ = true;
  // It may have changed while the files were read.
  if (spill_ != nullptr) spill_->SetBudget(spill_budget_bytes_);
  Recover(*journal_, spill_.get(), std::move(kept), store);
  if (spills()) thread_ = std::jthread([this] { Run(stopping_.get_token()); });
  return absl::OkStatus();
}

void Disk::Stop() {
  stopping_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (open_ && !journal_->Flush(clock_.Now() + base::Scaled(2s)))
    spdlog::error("op=disk_stop the disk is too slow: records are lost");
}

void Disk::SetSpillBudget(std::int64_t bytes) {
  spill_budget_bytes_ = bytes;
  if (open_ && spill_ != nullptr) spill_->SetBudget(bytes);
}

bool Disk::MakeRoom(base::MonotonicTime deadline) {
  if (!open_ || !spills()) return false;
  base::MutexLock lock(mutex_);
  const std::uint64_t ours = ++asked_;
  changed_.NotifyAll();
  const auto is_answered = [&]()
                               ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return answered_ >= ours; };
  const bool answered =
      clock_.WaitUntil(changed_, lock, stopping_.get_token(), deadline, is_answered);
  return answered && moved_;
}

DiskStats Disk::stats() const {
  DiskStats stats;
  if (!open_) return stats;
  stats.journal = journal_->stats();
  if (spill_ != nullptr) stats.spill = spill_->stats();
  return stats;
}

void Disk::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<base::Uid> gone;
    std::uint64_t asked = 0;
    bool wanted = false;
    {
      base::MutexLock lock(mutex_);
      clock_.WaitUntil(changed_, lock, stop, clock_.Now() + kLook,
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                         return !gone_.empty() || asked_ > answered_;
                       });
      gone = std::exchange(gone_, {});
      asked = asked_;
      wanted = asked_ > answered_;
    }
    // These files go before Relieve() writes new ones, because their bytes count against the spill
    // budget.
    for (const base::Uid& uid : gone) spill_->Remove(uid);
    const bool moved = Relieve(wanted, stop);
    const base::MutexLock lock(mutex_);
    answered_ = asked;
    moved_ = moved;
    changed_.NotifyAll();
  }
}

// Returns true when something was moved.
bool Disk::Relieve(bool asked, const std::stop_token& stop) {
  const JobStoreStats before = store_->stats();
  if (!asked && before.result_bytes <= before.budget_bytes / 10 * 9) return false;
  bool moved = false;
  while (!stop.stop_requested()) {
    // A caller of MakeRoom gets at least one move, however little is used: its result may be large.
    const bool enough = store_->stats().result_bytes <= before.budget_bytes / 10 * 8;
    if (enough && (moved || !asked)) break;
    if (!MoveOldest(stop)) break;
    moved = true;
  }
  return moved;
}

bool Disk::MoveOldest(const std::stop_token& stop) {
  const std::optional<base::Uid> uid = store_->OldestResult();
  if (!uid.has_value()) return false;
  const auto result = store_->FindResult(*uid);
  if (result == nullptr) return true;  // It was purged meanwhile, so there is room.
  {
    const base::MutexLock lock(mutex_);
    // Before the file is written: from here on, a purge of the result removes the file. An earlier
    // purge does not: the file that it meant goes when the new one is written.
    spilled_.insert(*uid);
    std::erase(gone_, *uid);
  }
  auto mapped = spill_->Write(*uid, *result);
  const bool kept = mapped.ok() && store_->Replace(*uid, *std::move(mapped), false);
  if (kept) return true;
  {
    const base::MutexLock lock(mutex_);
    spilled_.erase(*uid);
  }
  if (mapped.ok()) {
    spill_->Remove(*uid);
    // If the result is gone, its purge has made room. Otherwise "true" could make Relieve() move
    // the same result again and again.
    return store_->FindResult(*uid) == nullptr;
  }
  spdlog::warn("op=spill uid={} {}", uid->ToString(), base::View(mapped.status().message()));
  // Pause, so that a disk that fails or is full is not retried in a tight loop.
  base::MutexLock lock(mutex_);
  clock_.WaitUntil(changed_, lock, stop, clock_.Now() + base::Scaled(kSpillRetryPause),
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                     return !gone_.empty() || asked_ > answered_;
                   });
  return false;
}

}  // namespace onepiece::database
