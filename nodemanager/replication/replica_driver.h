// The thread of a ReplicatedLog: it drives a paxos::Replica, its disk and its network, and feeds
// the Applier. Private to this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/replica.h"
#include "nodemanager/replication/applier.h"
#include "nodemanager/replication/disk_writer.h"
#include "nodemanager/replication/group_id.h"
#include "nodemanager/replication/log_options.h"
#include "nodemanager/replication/log_queue.h"
#include "nodemanager/replication/state_hashes.h"
#include "nodemanager/replication/store.h"
#include "nodemanager/replication/transport.h"
#include "nodemanager/state/log.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/consensus.pb.h"

namespace onepiece::nodemanager {

/// The replica between two steps, as callers see it. It is valid during the call that hands it out.
struct ReplicaView {
  const paxos::Replica* replica;  ///< Null before the replica is made, and while the disk fails.
  const ReplicaIdentity& identity;
  const std::string& address;  ///< Empty before Start().
  v1::ReplicaStatus::Health health;
  const std::string& health_detail;
  LeaderTerm term;                                          ///< Of the present leadership, or none.
  const std::map<paxos::Slot, paxos::AcceptedEntry>& tail;  ///< The newest slots.
};

/// What a replica can do now, for load balancers and others that ask for a server's health.
struct ReplicaFitness {
  /// It votes, and its disk and its state are sound and near the end of the log.
  bool takes_part = false;
  /// It also leads, or can name the leader.
  bool knows_leader = false;
  friend bool operator==(const ReplicaFitness&, const ReplicaFitness&) = default;
};

/// Takes what is in a LogQueue, steps the replica, and does what its Outputs ask for: early
/// messages, the disk, late messages, and what is chosen to the Applier.
///
/// Ownership: borrows the queue and the clock, which must outlive it. Owns store, replica, applier,
/// transport and thread.
/// Threading: See(), ReadMachine(), applied(), term(), version_limit(), AwaitApplied(),
/// NotLeader() and AddressOf() are thread-safe. Open(), OnRole(), Start() and Stop() belong to the
/// log's owner. The thread never waits for the state machine. It waits for the disk, unless it
/// leads: then the disk works on the DiskWriter's thread.
/// Errors: a disk that fails does not end the thread. The replica answers nobody until its store
/// can be opened again, and then goes on from what is durable.
class ReplicaDriver {
 public:
  /// See ReplicatedLog::OnRole().
  using RoleCallback = std::function<void(bool leads)>;
  /// See ReplicatedLog::OnFitness().
  using FitnessCallback = std::function<void(ReplicaFitness)>;

  ReplicaDriver(ReplicatedLogOptions options, LogQueue& queue, base::Clock& clock);
  ~ReplicaDriver() { Stop(); }
  ReplicaDriver(const ReplicaDriver&) = delete;
  ReplicaDriver& operator=(const ReplicaDriver&) = delete;

  /// Opens the store and restores the state that it holds. Call it once, before all others.
  /// Errors: those of ReplicatedLog::Open().
  absl::Status Open();
  void OnRole(RoleCallback callback) { on_role_ = std::move(callback); }
  void OnFitness(FitnessCallback callback) { on_fitness_ = std::move(callback); }
  /// Makes the replica, opens the queue and begins to run. While the other seats of a new group
  /// must be asked first, the thread does all that.
  absl::Status Start(const std::string& address);
  /// Closes the queue and ends the thread, which answers what waits. Idempotent.
  void Stop();

  v1::ReplicaService::Service& service() { return transport_; }
  [[nodiscard]] const ReplicatedLogOptions& options() const { return options_; }

  /// Calls `see` with the replica between two steps. `see` must be short, because the thread waits
  /// for it. It may call every thread-safe function of this class but See().
  void See(absl::FunctionRef<void(const ReplicaView&)> see) const;
  /// See Applier.
  void ReadMachine(absl::FunctionRef<void(const StateMachine&, paxos::Slot applied)> read) const {
    applier_.Read(read);
  }
  [[nodiscard]] paxos::Slot applied() const { return applier_.applied(); }
  /// The number of the present leadership, or none. Unlike See() it never waits for a step.
  [[nodiscard]] LeaderTerm term() const { return term_.load(); }
  [[nodiscard]] std::uint32_t version_limit() const { return applier_.version_limit(); }
  [[nodiscard]] bool AwaitApplied(paxos::Slot slot, base::Duration limit) const {
    return applier_.Await(slot, limit);
  }
  /// UNAVAILABLE (NOT_LEADER), with the metadata "leader" when it is known.
  [[nodiscard]] absl::Status NotLeader(const ReplicaView& view) const;
  /// Where the replica in `seat` is now.
  [[nodiscard]] std::string AddressOf(const ReplicaView& view, const paxos::Seat& seat) const;
  /// The configured addresses of the other seats.
  [[nodiscard]] std::vector<std::string> OtherAddresses() const;
  [[nodiscard]] std::uint64_t leader_changes() const { return leader_changes_.load(); }
  [[nodiscard]] std::uint64_t disk_failures() const { return disk_failures_.load(); }
  /// Requests that wait for their slot or for room in the log.
  [[nodiscard]] std::uint64_t pending() const { return pending_.load(); }

 private:
  [[nodiscard]] absl::Status CheckIdentity() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  [[nodiscard]] ReplicaView View() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  [[nodiscard]] absl::Status NotLeader() const;

  // On the driver's thread, or on the thread of Start() before the driver's begins:
  bool AwaitOthers(const std::stop_token& stop);
  absl::StatusOr<paxos::DurableState> MakeNewReplica(bool begins);
  absl::Status MakeReplica(bool begins);

  // On the driver's thread:
  void Run(const std::stop_token& stop);
  void Recover(const std::stop_token& stop);
  LogInputs WaitForInputs(const std::stop_token& stop);
  void JoinGroup(const std::string& cluster_id, GroupId group);
  void Step(LogInputs inputs);
  void StepReplica(LogInputs& inputs);
  void TakeReport(paxos::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void Receive(paxos::Message& message, paxos::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void Begin(std::shared_ptr<LogRequest> request, paxos::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void AskIndex(std::shared_ptr<LogRequest> request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void AskIndexesAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void AnswerIndexes();
  void BeginSnapshot(std::shared_ptr<LogRequest> request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void CarryOut();
  // Each returns false when the disk has failed.
  bool FinishWrite();
  bool BeginWrite();
  void SendLate(std::vector<paxos::Message> late, std::vector<std::shared_ptr<LogRequest>> begun);
  void KeepTail(const paxos::AcceptedEntry& accepted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void FeedApplier();
  std::vector<std::shared_ptr<LogRequest>> TakeWaiting(const paxos::ChosenEntry& chosen);
  void SetNewerVersion(const std::string& what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  [[nodiscard]] bool MustIgnore(const paxos::Message& message) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  static void DropTooLarge(std::vector<paxos::Message>& messages);
  void FailDisk(const absl::Status& why);
  void FailWaiting(const absl::Status& why);
  void FailBegun(const absl::Status& why);
  void FailReads(const absl::Status& why);
  void FailSnapshots(const absl::Status& why);
  void AnswerRefused();
  void UpdatePeers();
  void PublishRole();
  void AskForDueSnapshot();
  void AskForState();

  // replica_checks.cc: what the replica finds out about itself.
  void Heed(const paxos::Message& message, paxos::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void StampHashes(std::vector<paxos::Message>& messages) const;
  bool LoadCorruption() ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void FenceIfOdd();
  void CheckLag() ABSL_EXCLUSIVE_LOCKS_REQUIRED(replica_mutex_);
  void PublishFitness();

  const ReplicatedLogOptions options_;
  LogQueue& queue_;
  base::Clock& clock_;
  Transport transport_;
  RoleCallback on_role_;
  FitnessCallback on_fitness_;

  // Held while the replica steps, never while the disk or the network works.
  mutable base::Mutex replica_mutex_;
  // Null while the disk fails.
  std::unique_ptr<paxos::Replica> replica_ ABSL_GUARDED_BY(replica_mutex_);
  ReplicaIdentity identity_ ABSL_GUARDED_BY(replica_mutex_);
  std::string address_ ABSL_GUARDED_BY(replica_mutex_);
  v1::ReplicaStatus::Health health_ ABSL_GUARDED_BY(replica_mutex_) = v1::ReplicaStatus::OK;
  std::string health_detail_ ABSL_GUARDED_BY(replica_mutex_);
  // Of the present leadership. None: does not lead. Changed under replica_mutex_.
  std::atomic<LeaderTerm> term_{};
  // Newest slots, for people.
  std::map<paxos::Slot, paxos::AcceptedEntry> tail_ ABSL_GUARDED_BY(replica_mutex_);

  StateHashes hashes_;
  Applier applier_;

  // The driver's thread alone.
  paxos::ReplicaOptions replica_options_;
  paxos::ReplicaId id_;  // That of identity_, which never changes once the replica is made.
  std::unique_ptr<Store> store_;              // Null while the disk fails, as replica_.
  std::optional<paxos::DurableState> state_;  // What Open() found. MakeReplica() takes it.
  paxos::Outputs out_;
  std::size_t tailed_ = 0;  // So many of out_.writes.accepted are in tail_.
  // What the write under way makes durable, and what follows it then.
  struct {
    std::vector<paxos::Message> late;
    std::vector<std::shared_ptr<LogRequest>> begun;
    bool urgent = false;
    paxos::Time since;
  } write_;
  std::vector<paxos::Message> to_self_;
  std::multimap<paxos::Slot, std::shared_ptr<LogRequest>> waiting_;
  std::vector<std::shared_ptr<LogRequest>> deferred_;  // Requests that found no room in the log.
  std::vector<std::shared_ptr<LogRequest>> begun_;     // To answer when out_ is durable.
  // Requests to answer when no lock is held, because an answer may ask the log.
  std::vector<std::pair<std::shared_ptr<LogRequest>, absl::Status>> refused_;
  // Requests for the leader's read index, by their numbers.
  std::map<std::uint64_t, std::shared_ptr<LogRequest>> indexes_;
  std::uint64_t next_index_;
  // Requests for a snapshot that holds this slot.
  std::vector<std::pair<paxos::Slot, std::shared_ptr<LogRequest>>> snapshots_;
  bool state_asked_ = false;  // The Applier makes a state.
  // Of the entries that the Applier got since the last snapshot was asked for.
  std::size_t fed_bytes_ = 0;
  paxos::Members members_;   // The members that the transport knows.
  paxos::ReplicaId leader_;  // The leader after the last step.
  bool halted_ = false;      // True after an entry of a newer version.
  std::string newer_;        // Describes that entry.
  base::Duration backoff_{};
  // A new leader's term begins when this slot is applied. None: it does not lead, or not yet.
  paxos::Slot ready_at_;
  // The last term that has begun, and the last term of which on_role_ was told.
  LeaderTerm last_term_, told_term_;
  bool closing_ = false;
  bool fenced_ = false;         // The state is corrupt. The replica is gone, until its folder is.
  paxos::Slot leaders_chosen_;  // The highest slot that a leader has told to be chosen.
  ReplicaFitness told_fitness_;

  std::atomic<std::uint64_t> leader_changes_{0}, disk_failures_{0}, pending_{0};
  DiskWriter writer_;
  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
