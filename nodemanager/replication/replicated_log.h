// The Log of a group of replicas. It gives a paxos::Replica a disk, a network, a clock and a
// thread.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/replica.h"
#include "nodemanager/replication/store.h"
#include "nodemanager/replication/transport.h"
#include "nodemanager/state/log.h"

namespace onepiece::nodemanager {

/// One replica of the NodeManager, as a process runs it.
///
/// Ownership: owns store, replica, state machine, and the thread that steps them.
/// Threading: thread-safe, except OnRole(), Start() and Stop(), which belong to one thread.
/// Blocking: Propose() and Confirm() wait for a majority's disks, but at most for
/// `propose_timeout`.
/// Errors: a disk that fails does not end the process. The replica answers nobody until its store
/// can be opened again, and then goes on from what is durable.
class ReplicatedLog final : public Log {
 public:
  struct Options {
    std::string data_dir;
    /// The name of a new cluster. An existing group must have the same one. Empty allows any.
    std::string cluster_id;
    std::string name;  ///< The name of this replica's seat.
    /// The seats of a new group, and where a replica sends its Join. With none this replica is
    /// alone.
    std::vector<paxos::Seat> seats;
    /// If true, an empty folder begins a new group when none of `seats` has one.
    bool bootstrap = false;
    paxos::Options paxos;  ///< The log fills in name, address and seed.
    base::Duration propose_timeout = std::chrono::seconds(2);
    std::uint64_t snapshot_every = 1024;  ///< In slots.
  };
  /// Called on the log's thread when this replica becomes the ready leader, and when it no longer
  /// is. It must be short, and must not propose.
  using RoleCallback = std::function<void(bool leads)>;
  struct Counters {
    std::uint64_t leader_changes = 0, disk_failures = 0;
  };

  /// Opens the data folder, and restores the state that it holds.
  /// Errors: those of Store; FAILED_PRECONDITION (OTHER_CLUSTER, OTHER_REPLICA) when the folder
  /// belongs to another cluster or another name.
  static absl::StatusOr<std::unique_ptr<ReplicatedLog>> Open(Options options);
  ~ReplicatedLog() override;

  /// Sets the callback. Call it before Start().
  void OnRole(RoleCallback callback);
  /// The service for other replicas, to be served at the address of Start().
  v1::ReplicaService::Service& service() { return transport_; }
  /// Begins to run at `address` (host:port), where the others reach service(). An empty folder
  /// becomes a replica of the group of `seats`, or of a new group. Before a group with several
  /// seats is begun, all others must have answered that they have none. Status() is WAITING
  /// meanwhile. The ConsensusService, which gives that answer for this replica, must be served
  /// before the call.
  ///
  /// Errors: those of Open().
  absl::Status Start(const std::string& address);
  /// Idempotent.
  void Stop();

  absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) override;
  void Read(const std::function<void(const StateMachine&)>& read) const override;
  [[nodiscard]] absl::StatusOr<std::uint64_t> Term() const override;
  absl::Status Confirm(std::uint64_t term) override;

  /// Changes the seats as paxos::Replica does. Returns the seats after the change is chosen.
  absl::StatusOr<paxos::Members> AddSeat(const paxos::Seat& seat);
  absl::StatusOr<paxos::Members> RemoveSeat(const std::string& name);
  absl::StatusOr<paxos::Members> ReplaceSeat(const std::string& name, const paxos::Seat& seat);
  absl::Status StepDown() override { return StepDown(options_.propose_timeout); }
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
  /// `limit` when `first` is 0.
  [[nodiscard]] v1::ListLogResponse ListLog(std::uint64_t first, int limit) const;
  /// The addresses of all seats, as far as this replica knows them. While it knows no leader, the
  /// configured addresses are added.
  [[nodiscard]] std::vector<std::string> Addresses() const;
  /// True when this replica is the only one that votes, and so leads without asking anybody.
  [[nodiscard]] bool IsAlone() const;
  /// The cluster's id. A new group takes the configured id, or a random one. It is empty while a
  /// new replica has not heard of its cluster.
  [[nodiscard]] std::string cluster_id() const;
  [[nodiscard]] Counters counters() const;

 private:
  // Something that a caller asks of the replica. The log's thread does it.
  struct Request {
    // Returns the slot whose entry answers the request. 0 means that it is answered when all that
    // it did is durable.
    std::function<absl::StatusOr<paxos::Slot>(paxos::Time, paxos::Outputs&)> begin;
    std::shared_ptr<const std::string> payload;  // The command's bytes, or null.
    bool appends = false;                        // It waits while the log has no room.
    std::atomic<bool> abandoned{false};          // True when nobody waits for the answer any more.
    std::promise<absl::StatusOr<v1::CommandResult>> answer;
  };
  struct Inputs {
    std::vector<paxos::Message> messages;
    std::vector<std::shared_ptr<Request>> requests;
    // The group that has asked a new replica to join, or 0.
    std::string cluster_id;
    std::uint64_t group = 0;
  };

  explicit ReplicatedLog(Options options);
  absl::Status CheckIdentity() const;
  // What the others said: that there is a group to join, else whom a new one has to wait for.
  struct Others {
    bool have_group = false;  // There is a group to join.
    std::string waits_for;    // The seats for which a new group has to wait, and why.
  };
  [[nodiscard]] Others AskOthers() const;
  bool AwaitOthers(const std::stop_token& stop);
  absl::StatusOr<paxos::DurableState> MakeNewReplica(bool begins);
  absl::Status MakeReplica(bool begins, const std::stop_token& stop);

  absl::StatusOr<v1::CommandResult> Ask(std::shared_ptr<Request> request) {
    return Ask(std::move(request), options_.propose_timeout);
  }
  absl::StatusOr<v1::CommandResult> Ask(std::shared_ptr<Request> request, base::Duration limit);
  absl::StatusOr<paxos::Members> ChangeMembers(
      std::function<absl::StatusOr<paxos::Slot>(paxos::Time, paxos::Outputs&)> change);
  [[nodiscard]] absl::Status NotLeader() const;
  [[nodiscard]] absl::Status NotLeaderLocked() const;
  [[nodiscard]] std::vector<std::string> OtherAddresses() const;  // Of options_.seats.
  [[nodiscard]] std::string AddressOf(const paxos::Seat& seat) const;

  // On the log's thread:
  void Run(const std::stop_token& stop);
  void Recover(const std::stop_token& stop);
  Inputs WaitForInputs(const std::stop_token& stop);
  void JoinGroup(const std::string& cluster_id, std::uint64_t group);
  void Step(Inputs inputs);
  void Begin(std::shared_ptr<Request> request, paxos::Time now);
  void CarryOut();
  absl::Status CommitWrites();
  void KeepTail(const std::vector<paxos::AcceptedEntry>& accepted);
  void Apply();
  // Returns false when no program up to this version can apply the command.
  static bool ReadCommand(const std::string& payload, v1::Command& command);
  // False, or what it was: of a version that this program does not know.
  bool ApplyEntry(const paxos::Entry& entry, v1::CommandResult& result);
  std::string Restore(const paxos::Snapshot& snapshot);
  void Halt(const std::string& what);
  void SetNewerVersion(const std::string& what);  // REQUIRES: replica_mutex_ is held.
  [[nodiscard]] bool MustIgnore(const paxos::Message& message) const;
  void DropTooLarge(std::vector<paxos::Message>& messages) const;
  void FailDisk(const absl::Status& why);
  void FailWaiting(const absl::Status& why);
  void PublishRole();
  std::shared_ptr<const std::string> SerializeState() const;

  Options options_;
  RoleCallback on_role_;
  std::string address_;
  Transport transport_;

  // Inputs of the log's thread.
  mutable base::Mutex queue_mutex_;
  base::CondVar queued_;
  Inputs queue_;
  bool closed_ = true;  // Not started, or stopping: no request is taken. Guarded by queue_mutex_.

  // Held while the replica steps, never while the disk or the network works. Before machine_mutex_.
  mutable base::Mutex replica_mutex_;
  std::unique_ptr<paxos::Replica> replica_;  // Null while the disk fails.
  ReplicaIdentity identity_;
  v1::ReplicaStatus::Health health_ = v1::ReplicaStatus::OK;
  std::string health_detail_;
  std::uint64_t term_ = 0;  // Of the present leadership; 0: does not lead.
  std::map<paxos::Slot, paxos::AcceptedEntry> tail_;  // Newest slots, for people.

  mutable base::Mutex machine_mutex_;
  StateMachine machine_;
  paxos::Slot applied_ = 0;  // Last slot that is part of machine_. Guarded by machine_mutex_.
  // Guarded by machine_mutex_: the slot after which the state had this hash.
  mutable std::optional<std::pair<paxos::Slot, std::uint32_t>> hashed_;

  // The log's thread alone.
  std::unique_ptr<Store> store_;
  std::optional<paxos::DurableState> state_;  // What Open() found. Start() takes it.
  paxos::Outputs out_;
  std::vector<paxos::Message> to_self_;
  std::multimap<paxos::Slot, std::shared_ptr<Request>> waiting_;
  std::vector<std::shared_ptr<Request>> deferred_;  // Requests that found no room in the log.
  std::vector<std::shared_ptr<Request>> begun_;     // Requests to answer when out_ is durable.
  paxos::Members members_;                          // The members that the transport knows.
  paxos::ReplicaId leader_ = 0;                     // The leader after the last step.
  bool halted_ = false;                             // True after an entry of a newer version.
  std::string newer_;                               // Describes that entry.
  base::Duration backoff_{};
  // How many terms have begun, and the last term of which on_role_ was told.
  std::uint64_t terms_ = 0, told_term_ = 0;
  bool closing_ = false;

  std::atomic<std::uint64_t> leader_changes_{0}, disk_failures_{0};
  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
