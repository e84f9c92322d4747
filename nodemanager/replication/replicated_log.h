// The Log of a group of replicas. It gives a paxos::Replica a disk, a network, a clock and a
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/backup/backup_file.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/replica.h"
#include "nodemanager/replication/log_options.h"
#include "nodemanager/replication/log_queue.h"
#include "nodemanager/replication/replica_driver.h"
#include "nodemanager/replication/request_deadlines.h"
#include "nodemanager/state/log.h"

namespace onepiece::nodemanager {

/// One replica of the NodeManager, as a process runs it.
///
/// Ownership: owns the queue and the ReplicaDriver. The driver's thread steps the replica, and its
/// Applier's thread changes the state and answers proposals.
/// Threading: thread-safe, except OnRole(), Start() and Stop(), which belong to one thread.
/// Blocking: Propose() and Confirm() wait for a majority's disks, but at most for
/// `propose_timeout`.
/// Errors: a disk that fails does not end the process. The replica answers nobody until its store
/// can be opened again, and then goes on from what is durable.
class ReplicatedLog final : public Log {
 public:
  /// Called on the log's thread when this replica becomes the ready leader, and when it no longer
  /// is. It must be short, and must not propose.
  using RoleCallback = ReplicaDriver::RoleCallback;
  /// Called on the log's thread when what this replica can do has changed. It must be short. At
  /// first it can do nothing.
  using FitnessCallback = ReplicaDriver::FitnessCallback;
  struct Counters {
    std::uint64_t leader_changes = 0, disk_failures = 0;
    std::uint64_t pending = 0;  ///< Requests that wait now.
  };
  struct DiskUse {
    std::uint64_t bytes = 0;      ///< Of the database, its write-ahead log included.
    std::uint64_t available = 0;  ///< What the disk has left.
  };

  /// Opens the data folder, and restores the state that it holds. `clock` times retries; consensus
  /// itself goes by CLOCK_BOOTTIME.
  /// Errors: those of Store; FAILED_PRECONDITION (OTHER_CLUSTER, OTHER_REPLICA) when the folder
  /// belongs to another cluster or another name.
  static absl::StatusOr<std::unique_ptr<ReplicatedLog>> Open(
      ReplicatedLogOptions options, base::Clock& clock = base::SystemClock());

  /// Sets the callback. Call it before Start(), as OnFitness().
  void OnRole(RoleCallback callback) { driver_.OnRole(std::move(callback)); }
  void OnFitness(FitnessCallback callback) { driver_.OnFitness(std::move(callback)); }
  /// The service for other replicas, to be served at the address of Start().
  v1::ReplicaService::Service& service() { return driver_.service(); }
  /// Begins to run at `address` (host:port), where the others reach service(). An empty folder
  /// becomes a replica of the group of `seats`, or of a new group. Before a group with several
  /// seats is begun, all others must have answered that they have none. Status() is WAITING
  /// meanwhile. The ConsensusService, which gives that answer for this replica, must be served
  /// before the call.
  ///
  /// Errors: those of Open().
  absl::Status Start(const std::string& address) { return driver_.Start(address); }
  /// Idempotent.
  void Stop() { driver_.Stop(); }

  absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) override;
  void ProposeAsync(const v1::Command& command, Answer answer) override;
  void Read(const std::function<void(const StateMachine&)>& read) const override;
  [[nodiscard]] absl::StatusOr<LeaderTerm> Term() const override;
  absl::Status CatchUp() const override;
  absl::Status Confirm(LeaderTerm term) override;
  absl::Status CatchUpWithLeader() override;

  /// Changes the seats as paxos::Replica does. Returns the seats after the change is chosen.
  absl::StatusOr<paxos::Members> AddSeat(const paxos::Seat& seat);
  absl::StatusOr<paxos::Members> RemoveSeat(const std::string& name);
  absl::StatusOr<paxos::Members> ReplaceSeat(const std::string& name, const paxos::Seat& seat);
  absl::Status StepDown() override { return StepDown(driver_.options().propose_timeout); }
  absl::Status StepDown(base::Duration limit);
  /// Takes a snapshot of the state and shortens the log.
  /// Errors: FAILED_PRECONDITION (NEWER_VERSION), RESOURCE_EXHAUSTED (LOG_BUSY), UNAVAILABLE
  /// (NOT_LEADER while the disk fails, OUTCOME_UNKNOWN), DEADLINE_EXCEEDED (OUTCOME_UNKNOWN).
  absl::StatusOr<v1::TakeSnapshotResponse> TakeSnapshot();
  /// The replica's status, without state_hash and without the warnings of the members. It is cheap.
  [[nodiscard]] v1::ReplicaStatus Status() const;
  /// The status with state_hash, the hash of the state after `applied`. It serialises the state,
  /// unless the state is still the same as at the last call.
  [[nodiscard]] v1::ReplicaStatus StatusWithHash() const;
  /// The newest slots in words, for people: at most `limit` from slot `first` on, or the last
  /// `limit` when `first` is none.
  [[nodiscard]] v1::ListLogResponse ListLog(paxos::Slot first, int limit) const;
  /// The state after the last slot that this replica has applied, for a new group to begin with.
  /// Promises and accepted entries are not in it, because a new group must not inherit them.
  /// Errors: FAILED_PRECONDITION (NOTHING_TO_BACK_UP while this replica knows no cluster, CORRUPT).
  [[nodiscard]] absl::StatusOr<backup::Backup> MakeBackup(base::WallTime now) const;
  /// The addresses of all seats, as far as this replica knows them. While it knows no leader, the
  /// configured addresses are added.
  [[nodiscard]] std::vector<std::string> Addresses() const;
  /// True when this replica is the only one that votes, and so leads without asking anybody.
  [[nodiscard]] bool IsAlone() const;
  /// The cluster's id. A new group takes the configured id, or a random one. It is empty while a
  /// new replica has not heard of its cluster.
  [[nodiscard]] std::string cluster_id() const;
  [[nodiscard]] Counters counters() const;
  /// Looks at the files.
  [[nodiscard]] DiskUse disk_use() const;

 private:
  ReplicatedLog(ReplicatedLogOptions options, base::Clock& clock)
      : deadlines_(options.propose_timeout), driver_(std::move(options), queue_, clock) {}

  absl::StatusOr<std::shared_ptr<LogRequest>> MakeProposal(const v1::Command& command) const;
  absl::StatusOr<v1::CommandResult> Ask(std::shared_ptr<LogRequest> request) {
    return Ask(std::move(request), driver_.options().propose_timeout);
  }
  absl::StatusOr<v1::CommandResult> Ask(std::shared_ptr<LogRequest> request, base::Duration limit);
  absl::StatusOr<paxos::Members> ChangeMembers(decltype(LogRequest::begin) change);
  // REQUIRES: view.replica is not null.
  void DescribeReplica(const ReplicaView& view, v1::ReplicaStatus& status) const;

  // Held while the state is serialised, so that callers who ask for the same hash share the work.
  // The driver takes its own mutexes inside.
  mutable base::Mutex hash_mutex_;
  // The slot after which the state had this hash.
  mutable std::optional<std::pair<paxos::Slot, std::uint32_t>> hashed_ ABSL_GUARDED_BY(hash_mutex_);

  LogQueue queue_;
  RequestDeadlines deadlines_;
  ReplicaDriver driver_;
};

}  // namespace onepiece::nodemanager
