// Compares two databases over the jobs that both should keep, and sends only the differences.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/database/placement.h"
#include "cluster/database/replicator.h"
#include "cluster/node/cluster_view.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct AntiEntropyOptions {
  std::string node_id;
  int copies = 2;
  // All durations are scaled.
  base::Duration interval = std::chrono::seconds(30);  ///< Between peers that hold the same.
  /// Pause before the next comparison with a peer that differed. The pause doubles each time: up
  /// to `interval` while the peer makes progress, and up to 16 times that while the peer keeps
  /// lacking the same results (it may be full).
  base::Duration first_pause = std::chrono::milliseconds(500);
  base::Duration call_timeout = std::chrono::seconds(5);
  /// How long the databases of the routing must have been the same before this one drops jobs that
  /// others keep. It is longer than a database takes to restart.
  base::Duration drop_after = std::chrono::seconds(30);
};

/// Totals since the start.
struct AntiEntropyStats {
  std::uint64_t compared = 0, equal = 0;
  std::uint64_t failures = 0;  ///< Comparisons that failed.
  std::uint64_t nonsense = 0;  ///< Answers that cannot be right; they were ignored.
  std::uint64_t records_pushed = 0, results_pushed = 0, records_asked = 0, results_asked = 0;
  std::uint64_t handed_over = 0;  ///< Jobs that were dropped, because their keepers have them.
};

/// The database that started later asks the one that started earlier. It asks when either of them
/// appears, when the set of databases changes, and every `interval`. The two compare digests of
/// buckets, then the jobs of the buckets that differ. This database pushes what the peer lacks
/// through the replicator, asks for what it lacks itself with SendJobs, and compares again.
///
/// A tombstone alone is no difference, because each instance forgets its own tombstones in time.
/// But a peer that still holds the job as alive is told of the tombstone. Whenever the set of
/// databases changes, this database hands on the jobs that are no longer its own to keep,
/// tombstones included. It drops them once every keeper says that it has them, so that it does not
/// bring back later what was deleted or fetched meanwhile.
///
/// Ownership: owns its thread and connections. Borrows store, replicator and clock.
/// Threading: thread-safe.
/// Blocking: Compare and Send do not block. CompareWith blocks for the timeouts of two calls, and
/// of one more for each 4096 jobs that it asks for. Stop waits for the call in progress.
class AntiEntropy {
 public:
  static constexpr int kMaxSummaries = 65'536;   ///< Per answer, unless one bucket alone has more.
  static constexpr int kMaxUidsPerCall = 4'096;  ///< In each list of SendJobsRequest.
  /// Jobs that are looked at before the comparisons get their turn again.
  static constexpr std::size_t kDropsAtOnce = 64;

  AntiEntropy(const node::ClusterView& view, AntiEntropyOptions options, JobStore& store,
              Replicator& replicator, base::Clock& clock = base::SystemClock());
  ~AntiEntropy();
  AntiEntropy(const AntiEntropy&) = delete;
  AntiEntropy& operator=(const AntiEntropy&) = delete;
  void Start();
  void Stop();

  /// Answers CompareJobs.
  ///
  /// Errors: FAILED_PRECONDITION (OTHER_CLUSTER), ABORTED (OTHER_VIEW), INVALID_ARGUMENT
  /// (BAD_DIGESTS).
  absl::StatusOr<v1::CompareJobsResponse> Compare(const v1::CompareJobsRequest& request);
  /// Answers SendJobs. Skips jobs that this database does not hold.
  ///
  /// Errors: those of Compare; INVALID_ARGUMENT (BAD_UID, TOO_MANY_JOBS).
  absl::Status Send(const v1::SendJobsRequest& request);
  /// Asks the peer to send its records of these jobs, at most kMaxUidsPerCall. It sends them soon.
  ///
  /// Errors: those of the peer.
  absl::Status AskForRecords(const v1::Endpoint& peer, std::span<const base::Uid> uids) const;
  /// Checks that `cluster_id` is the id of this database's cluster.
  ///
  /// Errors: FAILED_PRECONDITION (OTHER_CLUSTER).
  [[nodiscard]] absl::Status CheckCluster(const std::string& cluster_id) const;

  /// Compares with this peer now. Returns true when the two hold the same.
  ///
  /// Errors: those of the peer; DATA_LOSS (BAD_ANSWER).
  absl::StatusOr<bool> CompareWith(const v1::Endpoint& peer);
  /// Returns the latest time at which no database of the routing had anything that this instance
  /// lacked: each of them, in its present incarnation, has been compared with since then. Returns
  /// nullopt when one of them has not been compared with yet, or when there is no routing yet.
  [[nodiscard]] std::optional<base::MonotonicTime> SettledTime() const;
  /// Returns when the two were last found to hold the same.
  [[nodiscard]] std::optional<base::WallTime> ComparedTime(const std::string& node_id) const;
  [[nodiscard]] AntiEntropyStats stats() const;

 private:
  struct Contact {
    std::uint64_t incarnation = 0;
    base::MonotonicTime next;
    base::Duration pause{};
    std::size_t lacking = 0;  ///< Results that the peer lacked last time.
    /// When the peer last had nothing that this database lacked.
    std::optional<base::MonotonicTime> settled_time;
    std::optional<base::WallTime> compared_time;
  };
  struct Plan {
    std::vector<base::Uid> push_records, push_results, ask_records, ask_results;
    [[nodiscard]] bool empty() const {
      return push_records.empty() && push_results.empty() && ask_records.empty() &&
             ask_results.empty();
    }
  };

  struct Member {
    std::uint64_t incarnation = 0;
    node::DatabasePlace place;
    friend bool operator==(const Member&, const Member&) = default;
  };
  /// The databases of a routing table, by node id.
  using Members = std::map<std::string, Member>;

  void Run(const std::stop_token& stop);
  /// Returns the jobs that this instance holds but should not keep, tombstones included. No
  /// comparison finds these jobs, since a comparison covers only jobs that both sides should keep.
  std::vector<base::Uid> NotOurs(const Places& databases) const;
  /// Sends these jobs to their keepers.
  void HandOn(const std::vector<base::Uid>& uids);
  /// Sends the tombstones that this instance keeps to those who keep them too now and did not when
  /// the databases were `before`. A comparison does not: it leaves tombstones out.
  void TellNewKeepers(const Members& before, const Members& now);
  /// Drops of the jobs in `not_ours` those that all their keepers have, hands on the others again,
  /// and takes both off the list, kDropsAtOnce at a time.
  void DropHandedOn(const node::Routing& routing, std::vector<base::Uid>& not_ours);
  /// Returns whether the keeper has all of the job that `record` says. Notes in `away` that it does
  /// not answer.
  bool Has(const v1::Endpoint& keeper, const v1::JobRecord& record, std::set<std::string>& away);
  std::optional<v1::Endpoint> NextDue();
  void Schedule(const v1::Endpoint& peer, const absl::StatusOr<bool>& equal);
  /// Adds one bucket to the plan. Returns false when `theirs` cannot be right.
  bool PlanBucket(const std::vector<v1::JobSummary>& mine,
                  const std::vector<const v1::JobSummary*>& theirs, Plan& plan) const;
  absl::StatusOr<Plan> MakePlan(const v1::CompareJobsResponse& answer,
                                const JobStore::Filter& filter) const;
  absl::Status Carry(const v1::Endpoint& peer, v1::DatabaseService::Stub& stub, const Plan& plan);
  [[nodiscard]] JobStore::Filter BothKeep(Places databases, const std::string& peer) const;
  void NoteEqual(const std::string& node_id, base::MonotonicTime time);

  const node::ClusterView& view_;
  const AntiEntropyOptions options_;
  JobStore& store_;
  Replicator& replicator_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  // As of the last look at the routing.
  Places databases_ ABSL_GUARDED_BY(mutex_);
  // Databases in the routing.
  std::map<std::string, Contact> contacts_ ABSL_GUARDED_BY(mutex_);
  AntiEntropyStats stats_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace onepiece::database
