// The database's memory: job records, result bytes, and every rule about how long they live (DESIGN
// §4, §9).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/database/result_bundle.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct JobStoreOptions {
  std::int64_t budget_bytes = std::int64_t{1} << 30;  ///< For result bytes.
  std::int64_t max_records = 100'000;
  std::int64_t max_record_bytes = std::int64_t{512} << 20;  ///< Serialised size of all records.
  base::Duration tombstone_ttl = std::chrono::hours(1);
  /// A holder that is not alive for so long has lost its jobs.
  base::Duration holder_grace = std::chrono::seconds(1);
};

enum class StoreOutcome {
  kStored,
  kLate,     ///< The job has ended already, or has this result: counted and dropped.
  kRefused,  ///< No room. A kResult ends its job FAILED(RESULT_BUDGET_EXCEEDED); a kReplica is only
             ///< not kept.
};

/// What of a job a peer does not have yet.
enum class Change { kRecord, kResultBytes };

/// Totals since the start, and what is held now.
struct JobStoreStats {
  std::int64_t records = 0, results = 0, result_bytes = 0, budget_bytes = 0;
  std::uint64_t stored = 0, late_results = 0, refused_results = 0, evicted_results = 0;
  std::uint64_t expired = 0, lost = 0, deadline_exceeded = 0, refused_records = 0;
};

/// Job records by uid, with the bytes of their results.
///
/// Ownership   Owns everything it holds; artifacts handed out share their bytes and outlive their
/// purge. Threading   Thread-safe. The observer runs under the store's lock and must not call the
/// store. Blocking    Only WaitForChange waits. Invariants  Every change is a Join (cluster/job) of
/// what was there with something newer, so peers converge.
///             records <= max_records, result bytes <= budget_bytes, always.
/// Errors      NOT_FOUND JOB_UNKNOWN, INVALID_ARGUMENT BAD_UID, RESOURCE_EXHAUSTED RECORDS_FULL;
/// others as named.
class JobStore {
 public:
  using Observer = std::function<void(const base::Uid&, Change)>;
  using IsAlive = std::function<bool(const v1::WorkHolder&)>;

  /// `clock` must outlive the store. `observer` may be empty.
  JobStore(JobStoreOptions options, base::Clock& clock, Observer observer);

  /// Stores a new record, QUEUED; or returns the one that is there (deleted ones too).
  absl::StatusOr<v1::CreateJobResponse> Create(v1::JobRecord record);
  /// Moves a job forward. A job that has ended takes nothing but timings.
  absl::StatusOr<v1::JobRecord> Update(const v1::UpdateJobRequest& request);
  /// Keeps a result; the first one wins. `kind` is kResult or kReplica.
  absl::StatusOr<StoreOutcome> StoreResult(const ResultBundle& bundle, message::Kind kind);
  /// Ends a job whose last stage delivered something unusable.
  void FailJob(const base::Uid& uid, const std::string& reason, const std::string& message);
  /// Joins a peer's records into ours. What they did not know of goes back to them through the
  /// observer.
  void Merge(std::span<const v1::JobRecord> records);

  absl::StatusOr<v1::JobRecord> Get(const std::string& uid) const;
  /// Newest first. Errors: INVALID_ARGUMENT with BAD_PAGE_TOKEN or BAD_PAGE_SIZE.
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request) const;
  /// The artifact of that name; the first one for "". Errors: FAILED_PRECONDITION with
  /// JOB_NOT_DONE, JOB_FAILED, JOB_CANCELLED, RESULT_FETCHED or RESULT_EXPIRED; UNAVAILABLE
  /// RESULT_ELSEWHERE; NOT_FOUND ARTIFACT_UNKNOWN.
  absl::StatusOr<StoredArtifact> FindArtifact(const std::string& uid,
                                              const std::string& name) const;
  /// All artifacts of a result whose bytes are here, or nullptr.
  std::shared_ptr<const std::vector<StoredArtifact>> FindResult(const base::Uid& uid) const;
  /// The client was sent the whole artifact: the result goes first when memory is short.
  void MarkStreamed(const std::string& uid, const std::string& artifact);
  /// Purges the bytes; the record stays as a tombstone. Idempotent. Errors as FindArtifact.
  absl::StatusOr<v1::Job> Acknowledge(const std::string& uid);
  /// Cancels if not done, purges, leaves a hidden tombstone.
  absl::Status Delete(const std::string& uid);

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
  JobStoreStats stats() const;

 private:
  using TimeKey = std::pair<base::WallTime, base::Uid>;
  /// Newest first: minus the create_time since the epoch, then the uid.
  using AgeKey = std::pair<base::Duration, base::Uid>;
  using HolderKey = std::tuple<std::string, std::string, std::string, std::uint64_t>;
  /// (stage, from, node id, incarnation)
  static HolderKey KeyOf(const v1::WorkHolder& holder) {
    return {holder.stage(), holder.from(), holder.node_id(), holder.incarnation()};
  }
  struct Entry {
    v1::JobRecord record;
    std::int64_t revision = 0;
    std::int64_t record_bytes = 0;
    AgeKey age;          ///< Key in by_age_.
    base::WallTime due;  ///< Key in timers_: when Sweep has something to do.
    bool tombstone = false;
    std::shared_ptr<const std::vector<StoredArtifact>> result;
    std::int64_t result_bytes = 0;
    std::set<std::string> streamed;
    std::optional<base::WallTime> streamed_at;               ///< Key in streamed_.
    std::map<HolderKey, base::MonotonicTime> missing_since;  ///< Of live holders that are away.
    std::shared_ptr<std::condition_variable_any> changed;
  };
  using Entries = std::unordered_map<base::Uid, Entry>;

  // All private methods need mutex_.
  absl::StatusOr<base::Uid> Locate(const std::string& uid) const;
  Entry* Insert(const base::Uid& uid, const v1::JobRecord& record);
  bool Commit(const base::Uid& uid, Entry& entry, const v1::JobRecord& next);
  void Reschedule(const base::Uid& uid, Entry& entry);
  void Attach(Entry& entry, const ResultBundle& bundle);
  void DropBytes(const base::Uid& uid, Entry& entry);
  void Erase(const base::Uid& uid);
  bool MakeRoomForRecord(std::int64_t record_bytes);
  bool MakeRoomForBytes(std::int64_t bytes);
  void Fail(const base::Uid& uid, Entry& entry, const std::string& reason,
            const std::string& message);
  void MarkFetched(const base::Uid& uid, Entry& entry);
  void ExpireDue(base::WallTime now, const IsAlive& is_alive);
  void FailOverdue(const base::Uid& uid, Entry& entry, const IsAlive& is_alive);
  void FailOrphans(const IsAlive& is_alive);
  void Notify(const base::Uid& uid, Change change);
  absl::Status CheckFetchable(const v1::JobRecord& record) const;

  const JobStoreOptions options_;
  base::Clock& clock_;
  const Observer observer_;

  mutable std::mutex mutex_;
  Entries entries_;
  std::set<AgeKey> by_age_;
  std::set<TimeKey> timers_;      ///< (due, uid)
  std::set<TimeKey> tombstones_;  ///< (due, uid) of tombstones
  std::set<TimeKey>
      streamed_;  ///< (streamed_at, uid) of results that were sent but not acknowledged
  std::set<base::Uid> active_;  ///< Not ended.
  std::int64_t record_bytes_ = 0;
  JobStoreStats stats_;
};

}  // namespace onepiece::database
