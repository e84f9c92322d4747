// A shard of the job store: the jobs of some hash buckets (BucketOf in digest.h), under one lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/database/job_store_types.h"
#include "cluster/database/store_budget.h"
#include "cluster/database/tenant_bytes.h"
#include "cluster/database/timer_wheel.h"
#include "cluster/database/watches.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

/// What the shards of one store share: its options, the budgets (`records` in records, the others
/// in bytes), and the counters behind JobStoreStats, of which `results` counts those in memory.
///
/// Ownership: borrows the clock.
/// Threading: thread-safe.
struct StoreShared {
  StoreShared(const JobStoreOptions& given, base::Clock& its_clock, JobStoreHooks its_hooks)
      : options(given),
        clock(its_clock),
        hooks(std::move(its_hooks)),
        records(given.max_records),
        record_bytes(given.max_record_bytes),
        result_bytes(given.budget_bytes),
        watches(its_clock),
        tombstone_ttl(given.tombstone_ttl) {}

  const JobStoreOptions options;
  base::Clock& clock;
  const JobStoreHooks hooks;
  Budget records, record_bytes, result_bytes;
  TenantBytes tenant_bytes;  ///< Of results, in memory and spilled.
  Watches watches;
  std::atomic<base::Duration> tombstone_ttl;    ///< For those to come.
  std::atomic<std::uint64_t> last_revision{0};  ///< The last revision of any job.
  std::atomic<std::uint64_t> last_ticket{0};    ///< The last ticket that any Line gave out.
  std::atomic<std::int64_t> results{0}, missing_results{0}, spilled_results{0}, spilled_bytes{0};
  std::atomic<std::int64_t> fetched_tombstones{0}, expired_tombstones{0}, deleted_tombstones{0};
  std::atomic<std::uint64_t> stored{0}, late_results{0}, refused_results{0}, evicted_results{0};
  std::atomic<std::uint64_t> expired{0}, lost{0}, deadline_exceeded{0}, refused_records{0};
  std::atomic<std::uint64_t> lost_on_restart{0}, tombstones_forgotten{0};
};

/// The phases of a job's life. kEnded: it has ended, and none of the later phases has come yet. A
/// phase above kEnded is a tombstone.
enum class Phase : std::uint8_t { kOpen, kEnded, kFetched, kEvicted, kExpired, kDeleted };

/// Orders jobs newest first: the negated create_time since the epoch, then the uid.
using AgeKey = std::pair<base::Duration, base::Uid>;

/// Holds the jobs of some hash buckets. A method with the name of one of JobStore does what that
/// does, for one job of this shard; where it differs, its comment says so. Whatever needs other
/// shards too, such as making room, is done by JobStore, so no thread ever holds the locks of two
/// shards.
///
/// Ownership: owns its jobs. Borrows `shared`, which must outlive it.
/// Threading: thread-safe.
/// Blocking: never.
class StoreShard {
 public:
  explicit StoreShard(StoreShared& shared) : shared_(shared), timers_(shared.clock.Now()) {}
  StoreShard(const StoreShard&) = delete;
  StoreShard& operator=(const StoreShard&) = delete;
  ~StoreShard();

  /// `record` must be normalised (job::Normalize). It is moved from only if it is stored. The job
  /// has `limit` until its deadline. Returns nullopt when there is no room for another record.
  std::optional<v1::CreateJobResponse> Create(const base::Uid& uid, v1::JobRecord& record,
                                              base::Duration limit);
  absl::StatusOr<v1::ClaimStartResponse> Claim(const base::Uid& uid,
                                               const v1::ClaimStartRequest& request);
  absl::StatusOr<v1::JobRecord> Update(const base::Uid& uid, const v1::UpdateJobRequest& request);
  /// Returns nullopt when there is no room for a record, kFull when there is none for the bytes,
  /// and never kRefused. After kFull there may be a record that was made up for the result.
  std::optional<StoreOutcome> StoreResult(const ResultBundle& bundle, message::Kind kind,
                                          bool hold);
  /// Counts a result as refused. If it is a kResult, its job fails with RESULT_BUDGET_EXCEEDED.
  void Refuse(const ResultBundle& bundle, message::Kind kind);
  bool Confirm(const base::Uid& uid);
  void FailJob(const message::Header& result, const std::string& reason,
               const std::string& message);
  /// How much time a record's state has left (JobRecord.time_left); nullopt when its sender did not
  /// say.
  using TimeLeft = std::optional<base::Duration>;
  /// `theirs` must be normalised. Returns false when there is no room for another record.
  bool Merge(const base::Uid& uid, const v1::JobRecord& theirs, TimeLeft left);
  /// A peer says that the claim of this number holds for so long yet (StartLease.time_left). Call
  /// it after the Merge of that peer's record.
  void ExtendLease(const base::Uid& uid, std::uint64_t number, TimeLeft left);
  enum class Restored {
    kYes,
    kStale,  ///< A tombstone that is too old to keep.
    kNoRoom
  };
  /// `record` must be normalised.
  Restored Restore(const base::Uid& uid, v1::JobRecord& record, TimeLeft left,
                   const Artifacts& artifacts);
  void MarkLost(base::MonotonicTime since, const JobStore::Filter& filter);

  absl::StatusOr<v1::JobRecord> Get(const base::Uid& uid) const;
  absl::StatusOr<StoredArtifact> FindArtifact(const base::Uid& uid, const std::string& name) const;
  std::shared_ptr<const Artifacts> FindResult(const base::Uid& uid) const;
  bool Replace(const base::Uid& uid, Artifacts artifacts, bool counted);
  void MarkStreamed(const base::Uid& uid, const std::string& artifact);
  absl::StatusOr<v1::Job> Acknowledge(const base::Uid& uid);
  absl::Status Delete(const base::Uid& uid);
  /// Returns the job as clients see it, and calls Watches::Changed at its next change.
  absl::StatusOr<JobRevision> Watch(const base::Uid& uid);
  /// Returns the record as peers should hold it, or nullopt when the job is not here. A deleted
  /// job's record is here. Held bytes count as has_bytes.
  std::optional<v1::JobRecord> Record(const base::Uid& uid) const;

  /// Takes the job as recorded, and its state as clients see it, which may be kExpired or lost by
  /// now. Runs under the lock.
  using Wanted = std::function<bool(const v1::Job&, v1::Job::State)>;
  /// Returns the keys of the first `limit` jobs, newest first, that come after the key `after` and
  /// that `wanted` accepts.
  std::vector<AgeKey> Positions(const AgeKey& after, std::size_t limit, const Wanted& wanted) const;
  /// Returns the job as clients see it, if it is here and `wanted` accepts it.
  std::optional<v1::Job> Seen(const base::Uid& uid, const Wanted& wanted) const;
  /// `has_bytes` is false for a held result. Tombstones are not visited. Runs under the lock.
  using Visit = std::function<void(const base::Uid&, std::uint64_t digest, bool has_bytes)>;
  void VisitDigests(const JobStore::Filter& filter, const Visit& visit) const;
  void AddTombstones(const JobStore::Filter& filter, std::vector<base::Uid>& uids) const;
  /// `record` must be normalised.
  bool Drop(const base::Uid& uid, const v1::JobRecord& record);

  void Sweep(const JobStore::IsAlive& is_alive);
  /// Expires results that are due and count against the budget. The others wait for Sweep. Returns
  /// whether there were any.
  bool ExpireResults();

  /// The tickets of the oldest tombstone, of the oldest result that was sent to its client, and of
  /// the oldest result in memory; kNoTicket when there is none. A ticket is a number that grows
  /// with every entry into a line, over all shards. These do not take the lock, so a ticket may be
  /// out of date.
  static constexpr std::uint64_t kNoTicket = std::numeric_limits<std::uint64_t>::max();
  [[nodiscard]] std::uint64_t tombstone_ticket() const { return oldest_tombstone_; }
  [[nodiscard]] std::uint64_t streamed_ticket() const { return oldest_streamed_; }
  [[nodiscard]] std::uint64_t result_ticket() const { return oldest_result_; }
  /// Erases the oldest tombstone, if there is one, and counts it.
  void ForgetOldestTombstone();
  /// Evicts the oldest result whose artifacts were all sent to its client.
  void EvictOldestStreamed();
  /// Returns the result that has been in memory the longest, which is never a held one; nullopt
  /// when there is none.
  std::optional<base::Uid> OldestResult() const;

 private:
  /// Stage, `from`, node id and incarnation of a holder.
  using HolderKey = std::tuple<std::string, std::string, std::string, std::uint64_t>;
  static HolderKey KeyOf(const v1::WorkHolder& holder) {
    return {holder.stage(), holder.from(), holder.node_id(), holder.incarnation()};
  }
  struct JobEntry : Timer {  // The timer is due when Sweep has something to do for the job.
    explicit JobEntry(const base::Uid& its_uid) : uid(its_uid) {}

    const base::Uid uid;
    v1::JobRecord record;  ///< Normalised.
    std::uint64_t revision = 0;
    std::int64_t record_bytes = 0;
    std::optional<AgeKey> age;  ///< Its key in by_age_.
    Phase phase = Phase::kOpen;
    base::Duration life{};  ///< How long `phase` lasts in all; 0 for kOpen, which has a deadline.
    base::MonotonicTime open_until{};  ///< The deadline of a job that was open here.
    bool known = false;                ///< Being restored: the `ended` hook is not called for it.
    bool lost = false;  ///< Clients of this database see LOST_ON_RESTART. Peers do not learn of it.
    bool held = false;  ///< `result` waits for Confirm. Only while kOpen.
    base::MonotonicTime ending_since{};  ///< Since when it is held, or an end is proposed.
    bool counted = false;                ///< `result` counts against the budget.
    std::shared_ptr<const Artifacts> result;
    std::int64_t result_bytes = 0;
    /// Whose `result_bytes` are. A record that was made up for a result learns its tenant later.
    std::string result_tenant;
    const Artifacts* served = nullptr;  ///< The last argument of the `served` hook; never read.
    std::set<std::string> streamed;     ///< Artifacts that were sent whole to their client.
    std::uint64_t tombstone_ticket = 0, streamed_ticket = 0, result_ticket = 0;  ///< 0: in no line.
    mutable std::optional<std::uint64_t> digest;  ///< Unset: it must be computed.
    /// For each holder that is not alive, when that was first seen.
    std::map<HolderKey, base::MonotonicTime> missing_since;
    bool watched = false;      ///< Since Watch(). Never unset.
    std::uint64_t leased = 0;  ///< The number of the claim that `lease_until` is about.
    base::MonotonicTime lease_until{};
  };
  /// When a peer's copy of a record, or the journal's, leaves its phase. Ours must not live longer.
  struct Copy {
    Phase phase = Phase::kOpen;
    std::optional<base::MonotonicTime> due;
  };
  [[nodiscard]] Copy CopyOf(const v1::JobRecord& record, TimeLeft left) const;
  /// Entries in order of their tickets. Tickets grow over all shards, so the oldest entries of two
  /// shards can be compared.
  struct Line {
    explicit Line(std::atomic<std::uint64_t>& its_oldest) : oldest(its_oldest) {}

    std::map<std::uint64_t, JobEntry*> entries;
    std::atomic<std::uint64_t>& oldest;  ///< The first ticket, for readers without the lock.

    /// Does nothing for an entry that is in the line.
    void Add(JobEntry& entry, std::uint64_t& ticket, StoreShared& shared);
    /// Sets `ticket` to 0.
    void Remove(std::uint64_t& ticket);
  };

  JobEntry* Find(const base::Uid& uid) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  JobEntry* Insert(const base::Uid& uid, v1::JobRecord& record, TimeLeft left, bool known = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  base::Duration LifeOf(const v1::JobRecord& record) const;
  [[nodiscard]] bool IsOver(const v1::JobRecord& record, TimeLeft left) const;
  void SetDue(base::MonotonicTime due, JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Called after every change of an entry's record or bytes. `copy`: what it was joined with.
  void Committed(JobEntry& entry, const Copy& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Committed(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Committed(entry, Copy());
  }
  void SetPhase(JobEntry& entry, const Copy& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowBytes(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteMissing(const JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool Servable(const JobEntry& entry) {
    return entry.result != nullptr && entry.phase == Phase::kEnded;
  }
  static bool IsSeen(const JobEntry& entry, const Wanted& wanted);
  /// Returns whether these artifacts are those that the record names.
  static bool AreResultOf(const v1::JobRecord& record, const Artifacts& artifacts);
  static absl::Status JobUnknown(const base::Uid& uid, bool deleted);
  void Attach(JobEntry& entry, std::shared_ptr<const Artifacts> artifacts, std::int64_t bytes,
              bool counted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropBytes(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBytesBack(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ProposeEnd(v1::JobEnd end, JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ProposeSuccess(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskKeepers(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] static bool IsEnding(const JobEntry& entry) {
    return entry.held || entry.record.has_proposed();
  }
  void Erase(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(JobEntry& entry, const std::string& reason, const std::string& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MarkFetched(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepTimers(const JobStore::IsAlive& is_alive);
  void EndInTime(JobEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailOverdue(JobEntry& entry, const JobStore::IsAlive& is_alive)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailOrphans(const JobStore::IsAlive& is_alive);
  // Returns how long this must stay so before the holder's work is lost. Returns nullopt when the
  // holder is alive, or a keeper has its work.
  [[nodiscard]] std::optional<base::Duration> GraceOf(const JobEntry& entry,
                                                      const v1::WorkHolder& holder,
                                                      const JobStore::IsAlive& is_alive) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfOrphaned(JobEntry& entry, const JobStore::IsAlive& is_alive, base::MonotonicTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HoldLease(JobEntry& entry, base::Duration left) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] base::Duration LeaseLeft(const JobEntry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Notify(const JobEntry& entry, Change change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobRecord WithTimeLeft(const JobEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::JobRecord View(const JobEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::Job PublicView(const JobEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckFetchable(const JobEntry& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  StoreShared& shared_;
  std::atomic<std::uint64_t> oldest_tombstone_{kNoTicket}, oldest_streamed_{kNoTicket};
  std::atomic<std::uint64_t> oldest_result_{kNoTicket};
  mutable base::Mutex mutex_;
  mutable std::unordered_map<base::Uid, JobEntry> entries_ ABSL_GUARDED_BY(mutex_);
  TimerWheel timers_ ABSL_GUARDED_BY(mutex_);
  std::map<AgeKey, JobEntry*> by_age_ ABSL_GUARDED_BY(mutex_);
  std::set<base::Uid> open_ ABSL_GUARDED_BY(mutex_);  ///< The jobs in Phase::kOpen.
  /// Succeeded jobs whose bytes are not here and that are not marked lost, and since when.
  std::unordered_map<base::Uid, base::MonotonicTime> missing_ ABSL_GUARDED_BY(mutex_);
  Line tombstones_ ABSL_GUARDED_BY(mutex_){oldest_tombstone_};
  Line streamed_ ABSL_GUARDED_BY(mutex_){oldest_streamed_};
  Line results_ ABSL_GUARDED_BY(mutex_){oldest_result_};
};

}  // namespace onepiece::database
