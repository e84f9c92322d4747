// The database's memory: job records, result bytes, and every rule about how long they live
// (docs/database.md, "The store").
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/database/digest.h"
#include "cluster/database/job_store_types.h"
#include "cluster/database/watches.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

class StoreShard;
struct StoreShared;

/// Holds job records by uid, with the bytes of their results.
///
/// Ownership: owns everything it holds. Artifacts that it hands out share their bytes and stay
/// valid after a purge.
/// Threading: thread-safe. Jobs are spread over shards with a lock each. No thread holds two of
/// these locks at once.
/// Blocking: never, but for short locks. A thread of its own tells subscribers.
/// Errors: NOT_FOUND (JOB_UNKNOWN), INVALID_ARGUMENT (BAD_UID), RESOURCE_EXHAUSTED (RECORDS_FULL),
/// and those that a method names.
/// Invariants: every change joins the present record with a newer one (Join, cluster/job), so that
/// peers converge. Over all shards there are at most `max_records` records and `budget_bytes` bytes
/// of results, at any time.
class JobStore {
 public:
  using IsAlive = std::function<bool(const v1::WorkHolder&)>;
  using Filter = std::function<bool(const base::Uid&)>;

  /// `clock` must outlive the store.
  JobStore(JobStoreOptions options, base::Clock& clock, JobStoreHooks hooks);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  /// Stores a new record as QUEUED. If the job is known, even as deleted, returns its record
  /// instead.
  absl::StatusOr<v1::CreateJobResponse> Create(v1::JobRecord record);
  /// Takes or renews the lease to start an open job: `start_lease` from now on. Granted while
  /// nobody else has the lease. A renewal is granted even late, as long as nobody has claimed
  /// since.
  absl::StatusOr<v1::ClaimStartResponse> Claim(const v1::ClaimStartRequest& request);
  /// Moves a job forward. A job that has ended accepts only timings.
  absl::StatusOr<v1::JobRecord> Update(const v1::UpdateJobRequest& request);
  /// Keeps a result. The first result of a job's largest run wins. `kind` is kResult or kReplica.
  /// When there is no room, the store drops expired results and then, if JobStoreOptions::evict
  /// says so, evicts results that were sent to their client, the oldest first.
  absl::StatusOr<StoreOutcome> StoreResult(const ResultBundle& bundle, message::Kind kind,
                                           StoreMode mode = {});
  /// Replaces what JobStoreOptions says of the same names. Records and results that are here stay
  /// when a limit is below them. Nothing new comes in until there is room again, as when a store is
  /// full. A tombstone keeps the time that it was given.
  void SetLimits(const JobStoreLimits& limits);
  /// Bytes of this tenant's results, in memory and spilled.
  [[nodiscard]] std::int64_t BytesOf(const std::string& tenant) const;
  /// Makes room for a result of so many bytes, as StoreResult does. Returns whether there is room
  /// now.
  bool MakeRoom(std::int64_t bytes);
  /// Ends a job as its record proposes, or, when nothing is proposed and a result is kept with
  /// StoreMode::hold, as SUCCEEDED. While a result is held or an end is proposed, no other end
  /// comes from here; a peer may bring one. Returns false when the job has ended or is unknown.
  bool Confirm(const base::Uid& uid);
  /// Fails a job whose last stage delivered an unusable result, which came in a message with this
  /// header. A result of a run before the record's fails nothing, and neither does one whose stage
  /// has later attempts of all its work: the job is being done again.
  void FailJob(const message::Header& result, const std::string& reason,
               const std::string& message);
  /// Joins a peer's records into ours. Where our record knows more, the `changed` hook is called,
  /// so that the peer learns of it.
  void Merge(std::span<const v1::JobRecord> records);

  /// Restores a record of an earlier run, and the bytes of its result if `artifacts` has them. The
  /// bytes lie in files and do not count against the budget. The only hook that it calls is
  /// `served`, with nullptr for bytes that are not wanted. Returns false when the record is too
  /// old or malformed, or when there is no room; the store is then unchanged.
  bool Restore(v1::JobRecord record, const Artifacts& artifacts = {});
  /// Declares results lost that have been missing here since `since` or earlier and that `filter`
  /// accepts: no database has their bytes. Clients of this instance see these jobs as FAILED with
  /// LOST_ON_RESTART until the bytes arrive. `filter` runs under a shard's lock.
  void MarkLost(base::MonotonicTime since, const Filter& filter);

  /// Returns a record as clients see it.
  absl::StatusOr<v1::JobRecord> Get(const std::string& uid) const;
  /// Returns a page of jobs, newest first.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_PAGE_TOKEN, BAD_PAGE_SIZE).
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request) const;
  /// Returns the artifact of that name, or the first one for "".
  ///
  /// Errors: FAILED_PRECONDITION (JOB_NOT_DONE, JOB_FAILED, JOB_CANCELLED, RESULT_FETCHED,
  /// RESULT_EVICTED, RESULT_EXPIRED, LOST_ON_RESTART), UNAVAILABLE (RESULT_ELSEWHERE), NOT_FOUND
  /// (ARTIFACT_UNKNOWN).
  absl::StatusOr<StoredArtifact> FindArtifact(const std::string& uid,
                                              const std::string& name) const;
  /// Returns all artifacts of a result whose bytes are here, even of a held one; else nullptr.
  std::shared_ptr<const Artifacts> FindResult(const base::Uid& uid) const;
  /// Notes that the client was sent the whole artifact. When memory is short, results whose
  /// artifacts were all sent may be evicted (JobStoreOptions::evict).
  void MarkStreamed(const std::string& uid, const std::string& artifact);
  /// Purges the bytes. The record stays as a tombstone. Idempotent.
  ///
  /// Errors: those of FindArtifact.
  absl::StatusOr<v1::Job> Acknowledge(const std::string& uid);
  /// Cancels the job if it has not ended, purges its bytes, and leaves a hidden tombstone.
  absl::Status Delete(const std::string& uid);

  /// Returns the result that has been in memory the longest and may move to a file. A held result
  /// may not.
  std::optional<base::Uid> OldestResult() const;
  /// Replaces the bytes of a result by the same artifacts that lie elsewhere. `counted` says
  /// whether they count against the budget. Returns false when the result is no longer wanted (it
  /// was purged, or another one won), or when there is no room.
  bool Replace(const base::Uid& uid, Artifacts artifacts, bool counted);

  /// Fails jobs that are past their deadline or whose holder died, expires results, and forgets
  /// old tombstones. An empty `is_alive` means that nothing is known of other nodes.
  void Sweep(const IsAlive& is_alive);

  /// A subscription, and the job's state when it began.
  struct Subscribed {
    std::unique_ptr<Watches::Subscription> subscription;
    JobRevision now;
  };
  /// Calls `subscriber` with the latest state after the job has changed, outside of all locks. It
  /// is also told NOT_FOUND when the job is deleted or forgotten. `now` may be older than the
  /// subscriber's first state: the higher revision is the later one.
  absl::StatusOr<Subscribed> Subscribe(const std::string& uid, JobSubscriber subscriber);

  /// Returns copies of records for a peer. Records that were forgotten meanwhile are left out.
  std::vector<v1::JobRecord> Records(std::span<const base::Uid> uids) const;
  /// Returns the digests of the jobs that `filter` accepts, without tombstones. It walks over all
  /// jobs in small steps, so a job that changes meanwhile counts either as before or as after the
  /// change. `filter` runs under a shard's lock, as hooks do.
  Digests DigestsFor(const Filter& filter) const;
  /// Jobs of some buckets, each list at the index of its bucket.
  using Summaries = std::array<std::vector<v1::JobSummary>, kBuckets>;
  /// Returns the jobs that these buckets of DigestsFor(filter) cover, in one walk of the same kind.
  /// The lists of other buckets are empty.
  Summaries SummariesOf(std::span<const int> buckets, const Filter& filter) const;
  /// Returns the tombstones that `filter` accepts, in a walk of the same kind.
  std::vector<base::Uid> Tombstones(const Filter& filter) const;
  /// Forgets a job that others keep, with its bytes. `record` is what they are known to have.
  /// Returns false when the job has changed since, is held, or is not here.
  bool Drop(const base::Uid& uid, v1::JobRecord record);
  JobStoreStats stats() const;

 private:
  static constexpr std::size_t kShards = 16;

  StoreShard& ShardOf(const base::Uid& uid) const;
  StoreShard* Oldest(std::uint64_t (StoreShard::*ticket)() const) const;
  bool ForgetOldestTombstone();
  bool MakeRoomForBytes();

  const std::unique_ptr<StoreShared> shared_;
  std::array<std::unique_ptr<StoreShard>, kShards> shards_;
};

}  // namespace onepiece::database
