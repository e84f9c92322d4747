// The database's memory: job records, result bytes, and every rule about how long they live
// (docs/database.md, "The store").
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/database/digest.h"
#include "cluster/database/job_store_types.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

class StoreShard;
struct StoreShared;

/// Job records by uid, with the bytes of their results.
///
/// Ownership: Owns everything it holds; artifacts handed out share their bytes and outlive their
/// purge.
/// Threading: Thread-safe. Jobs are spread over shards with a lock each; no two are held together.
/// Blocking: Only WaitForChange waits.
/// Invariants: Every change is a Join (cluster/job) of what was there with something newer, so
/// peers converge. Records <= max_records, result bytes <= budget_bytes, always, over all shards.
/// Errors: NOT_FOUND JOB_UNKNOWN, INVALID_ARGUMENT BAD_UID, RESOURCE_EXHAUSTED RECORDS_FULL; others
/// as named.
class JobStore {
 public:
  using IsAlive = std::function<bool(const v1::WorkHolder&)>;
  using Filter = std::function<bool(const base::Uid&)>;

  /// `clock` must outlive the store.
  JobStore(JobStoreOptions options, base::Clock& clock, JobStoreHooks hooks);
  ~JobStore();
  JobStore(const JobStore&) = delete;
  JobStore& operator=(const JobStore&) = delete;

  /// Stores a new record, QUEUED; or returns the one that is there (deleted ones too).
  absl::StatusOr<v1::CreateJobResponse> Create(v1::JobRecord record);
  /// Moves a job forward. A job that has ended takes nothing but timings.
  absl::StatusOr<v1::JobRecord> Update(const v1::UpdateJobRequest& request);
  /// Keeps a result; the first one wins. `kind` is kResult or kReplica. What is full is made room
  /// in first: results that were sent to their client, oldest first, then what has expired.
  absl::StatusOr<StoreOutcome> StoreResult(const ResultBundle& bundle, message::Kind kind,
                                           StoreMode mode = {});
  /// A result that was kept with StoreMode::hold counts from now on. False: it counts already, or
  /// its job ended otherwise (a deadline, a cancellation, a deletion) or is not here.
  bool Confirm(const base::Uid& uid);
  /// Ends a job whose last stage delivered something unusable.
  void FailJob(const base::Uid& uid, const std::string& reason, const std::string& message);
  /// Joins a peer's records into ours. What they did not know of goes back to them through the
  /// hook.
  void Merge(std::span<const v1::JobRecord> records);

  /// Takes in a record of an earlier run, and the bytes of its result where `artifacts` has them
  /// (in files: they do not count). Calls no hook but `served`, with nullptr for bytes that are not
  /// wanted. False: too old, malformed, or no room; then nothing of it is here.
  bool Restore(v1::JobRecord record, const Artifacts& artifacts = {});
  /// Nobody has the bytes of the results that have been missing here since `since` or longer, of
  /// those that `filter` says yes to (it runs under a shard's lock): clients of this instance see
  /// these jobs FAILED, LOST_ON_RESTART, until bytes come.
  void MarkLost(base::MonotonicTime since, const Filter& filter);

  /// As clients see it.
  absl::StatusOr<v1::JobRecord> Get(const std::string& uid) const;
  /// Newest first.
  /// Errors: INVALID_ARGUMENT with BAD_PAGE_TOKEN or BAD_PAGE_SIZE.
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request) const;
  /// The artifact of that name; the first one for "".
  /// Errors: FAILED_PRECONDITION with JOB_NOT_DONE, JOB_FAILED, JOB_CANCELLED, RESULT_FETCHED,
  /// RESULT_EXPIRED or LOST_ON_RESTART; UNAVAILABLE RESULT_ELSEWHERE; NOT_FOUND ARTIFACT_UNKNOWN.
  absl::StatusOr<StoredArtifact> FindArtifact(const std::string& uid,
                                              const std::string& name) const;
  /// All artifacts of a result whose bytes are here, held ones too, or nullptr.
  std::shared_ptr<const Artifacts> FindResult(const base::Uid& uid) const;
  /// The client was sent the whole artifact: the result goes first when memory is short.
  void MarkStreamed(const std::string& uid, const std::string& artifact);
  /// Purges the bytes; the record stays as a tombstone. Idempotent. Errors as FindArtifact.
  absl::StatusOr<v1::Job> Acknowledge(const std::string& uid);
  /// Cancels if not done, purges, leaves a hidden tombstone.
  absl::Status Delete(const std::string& uid);

  /// The result that has been in memory the longest and may be moved to a file: not a held one.
  std::optional<base::Uid> OldestResult() const;
  /// The same artifacts, kept elsewhere; `counted`: against the budget. False: the result is not
  /// wanted any more (purged, or another one won), or there is no room.
  bool Replace(const base::Uid& uid, Artifacts artifacts, bool counted);

  /// Ends jobs that are past their deadline or whose holder died, expires results, forgets
  /// tombstones. An empty `is_alive` means that nothing is known of other nodes.
  void Sweep(const IsAlive& is_alive);

  /// Waits until the job's revision is above `after`, it is forgotten (NOT_FOUND), `deadline`
  /// passes (DEADLINE_EXCEEDED), or `stop` (CANCELLED). Returns the latest state only.
  struct Revision {
    v1::Job job;
    std::int64_t revision = 0;  ///< At least 1.
  };
  absl::StatusOr<Revision> WaitForChange(const std::string& uid, std::int64_t after,
                                         base::MonotonicTime deadline, std::stop_token stop);

  /// Copies for a peer, without those that are forgotten meanwhile.
  std::vector<v1::JobRecord> Records(std::span<const base::Uid> uids) const;
  /// Of the jobs, tombstones left out, that `filter` says yes to (it runs under a shard's lock, as
  /// hooks do). A walk over all jobs in small steps: jobs that change meanwhile are in it as before
  /// or as after.
  Digests DigestsFor(const Filter& filter) const;
  /// What these buckets of those digests hold, each at its bucket's place; the others are empty.
  /// One walk, as DigestsFor.
  using Summaries = std::array<std::vector<v1::JobSummary>, kBuckets>;
  Summaries SummariesOf(std::span<const int> buckets, const Filter& filter) const;
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
