// Finds what two databases hold differently of the jobs that both should keep, and has only that
// sent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/database/replicator.h"
#include "cluster/node/cluster_view.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct AntiEntropyOptions {
  std::string node_id;
  int copies = 2;
  // All scaled:
  base::Duration interval = std::chrono::seconds(30);  ///< Between peers that hold the same.
  /// The first look again at a peer that differed; doubles, up to `interval` while there is
  /// progress, and up to 16 of it with a peer that does not take what it lacks (it may be full).
  base::Duration first_pause = std::chrono::milliseconds(500);
  base::Duration call_timeout = std::chrono::seconds(5);
};

/// Totals since the start.
struct AntiEntropyStats {
  std::uint64_t compared = 0, equal = 0;
  std::uint64_t failures = 0;  ///< Comparisons that came to nothing.
  std::uint64_t nonsense = 0;  ///< Answers that cannot be right; nothing of them was used.
  std::uint64_t records_pushed = 0, results_pushed = 0, records_asked = 0, results_asked = 0;
};

/// Of two databases the one that started later asks: when it or the other appears, when the set of
/// databases changes, and every `interval`. Digests of buckets, then the jobs of differing buckets,
/// then what differs: ours through the replicator, theirs by SendJobs; then it looks again.
/// Tombstones are no difference by themselves (each instance forgets its own in time), but are told
/// to a peer that holds the job as alive. Whenever the set of databases changes, jobs that are not
/// this instance's to keep are handed on.
///
/// Ownership: Owns its thread and connections. Borrows store, replicator and clock.
/// Threading: Thread-safe.
/// Blocking: Compare, Send: not. CompareWith: two calls' timeouts and one for each 4096 jobs asked
/// for. Stop: the call in progress.
class AntiEntropy {
 public:
  static constexpr int kMaxSummaries = 65'536;   ///< In an answer, but for one whole bucket.
  static constexpr int kMaxUidsPerCall = 4'096;  ///< Of each list in SendJobsRequest.

  AntiEntropy(const node::ClusterView& view, AntiEntropyOptions options, const JobStore& store,
              Replicator& replicator, base::Clock& clock = base::SystemClock());
  ~AntiEntropy();
  AntiEntropy(const AntiEntropy&) = delete;
  AntiEntropy& operator=(const AntiEntropy&) = delete;
  void Start();
  void Stop();

  /// CompareJobs.
  /// Errors: FAILED_PRECONDITION (OTHER_CLUSTER), ABORTED (OTHER_VIEW), INVALID_ARGUMENT
  /// (BAD_DIGESTS).
  absl::StatusOr<v1::CompareJobsResponse> Compare(const v1::CompareJobsRequest& request);
  /// SendJobs. Jobs that are not here are passed over.
  /// Errors: as Compare, and BAD_UID, TOO_MANY_JOBS.
  absl::Status Send(const v1::SendJobsRequest& request);
  /// ReplicateJobs' check: a cluster's id that is given must be ours.
  /// Errors: FAILED_PRECONDITION (OTHER_CLUSTER).
  [[nodiscard]] absl::Status CheckCluster(const std::string& cluster_id) const;

  /// One comparison with this peer, now. True: the two hold the same.
  /// Errors: the peer's; DATA_LOSS (BAD_ANSWER).
  absl::StatusOr<bool> CompareWith(const v1::Endpoint& peer);
  /// No database in the routing had anything then that this instance lacked: each, as it now runs,
  /// has been compared with since. nullopt: not found yet, or nobody has told us who is there.
  [[nodiscard]] std::optional<base::MonotonicTime> SettledTime() const;
  /// When the two were last found to hold the same.
  [[nodiscard]] std::optional<base::WallTime> ComparedTime(const std::string& node_id) const;
  [[nodiscard]] AntiEntropyStats stats() const;

 private:
  struct Contact {
    std::uint64_t incarnation = 0;
    base::MonotonicTime next;
    base::Duration pause{};
    std::size_t lacking = 0;                          ///< Results that it lacked last time.
    std::optional<base::MonotonicTime> settled_time;  ///< It had nothing then that we lacked.
    std::optional<base::WallTime> compared_time;
  };
  struct Plan {
    std::vector<base::Uid> push_records, push_results, ask_records, ask_results;
    [[nodiscard]] bool empty() const {
      return push_records.empty() && push_results.empty() && ask_records.empty() &&
             ask_results.empty();
    }
  };

  void Run(const std::stop_token& stop);
  /// Jobs that this instance has and is not to keep go to those that are: no comparison finds them.
  void HandOn(const std::vector<std::string>& databases);
  std::optional<v1::Endpoint> NextDue();
  void Schedule(const v1::Endpoint& peer, const absl::StatusOr<bool>& equal);
  /// A bucket's part of the plan; false when `theirs` cannot be right.
  bool PlanBucket(const std::vector<v1::JobSummary>& mine,
                  const std::vector<const v1::JobSummary*>& theirs, Plan& plan) const;
  absl::StatusOr<Plan> MakePlan(const v1::CompareJobsResponse& answer,
                                const JobStore::Filter& filter) const;
  absl::Status Carry(const v1::Endpoint& peer, v1::DatabaseService::Stub& stub, const Plan& plan);
  [[nodiscard]] JobStore::Filter BothKeep(std::vector<std::string> databases,
                                          const std::string& peer) const;
  void NoteEqual(const std::string& node_id, base::MonotonicTime time);

  const node::ClusterView& view_;
  const AntiEntropyOptions options_;
  const JobStore& store_;
  Replicator& replicator_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar wake_;
  // As of the last look at the routing.
  std::vector<std::string> databases_ ABSL_GUARDED_BY(mutex_);
  // Databases in the routing.
  std::map<std::string, Contact> contacts_ ABSL_GUARDED_BY(mutex_);
  AntiEntropyStats stats_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace onepiece::database
