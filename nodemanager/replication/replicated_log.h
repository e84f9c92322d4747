// The Log of a group of replicas: a paxos::Replica with a disk, a network, a clock and a thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "nodemanager/paxos/replica.h"
#include "nodemanager/replication/store.h"
#include "nodemanager/replication/transport.h"
#include "nodemanager/state/log.h"

namespace onepiece::nodemanager {

/// Ownership  Owns store, replica, state machine and the thread that steps them.
/// Threading  Thread-safe, except Start() and Stop(): one thread.
/// Blocking   Propose() and Confirm() wait for a majority's disks, at most `propose_timeout`.
class ReplicatedLog final : public Log {
 public:
  struct Options {
    std::string data_dir;
    std::string cluster_id;  ///< Of a new group; of an existing one it must agree. May be empty.
    std::string name, address;
    std::vector<paxos::Seat> seats;  ///< Of a new group; where to Join. Empty: this replica alone.
    bool bootstrap = false;          ///< An empty folder begins a new group.
    paxos::Options paxos;            ///< Name, address, seed and version are filled in.
    base::Duration propose_timeout = std::chrono::seconds(2);
    std::uint64_t snapshot_every = 1024;  ///< Slots.
  };
  /// Called on the log's thread when this replica becomes the ready leader, and when it no longer
  /// is. Short; must not propose.
  using RoleCallback = std::function<void(bool leads)>;

  static absl::StatusOr<std::unique_ptr<ReplicatedLog>> Open(Options options);
  ~ReplicatedLog() override;

  void OnRole(RoleCallback callback);      ///< REQUIRES: before Start().
  v1::ReplicaService::Service& service();  ///< To be served at `address`.
  void Start();
  void Stop();

  /// Errors besides those of Log: UNAVAILABLE (NOT_LEADER, metadata "leader"), DEADLINE_EXCEEDED
  /// and UNAVAILABLE (OUTCOME_UNKNOWN): it may still be applied; ask again with the same request
  /// id.
  absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) override;
  void Read(const std::function<void(const StateMachine&)>& read) const override;
  /// Makes sure that what a Read() before this call saw was the newest state: by the lease, else by
  /// a no-op through the log. Errors: as Propose.
  absl::Status Confirm();

  /// As in paxos::Replica; the seats after the change, when it is chosen.
  absl::StatusOr<paxos::Members> AddSeat(const paxos::Seat& seat);
  absl::StatusOr<paxos::Members> RemoveSeat(const std::string& name);
  absl::StatusOr<paxos::Members> ReplaceSeat(const std::string& name, const paxos::Seat& seat);
  absl::Status StepDown();
  absl::StatusOr<v1::TakeSnapshotResponse> TakeSnapshot();
  [[nodiscard]] v1::ReplicaStatus Status() const;
  [[nodiscard]] v1::ListLogResponse ListLog(std::uint64_t first, int limit) const;
  /// UNAVAILABLE (NOT_LEADER) with the leader's address as metadata; OK when this is the ready
  /// leader.
  [[nodiscard]] absl::Status CheckLeads() const;
  [[nodiscard]] std::vector<std::string> Addresses() const;  ///< Of all seats.
};

}  // namespace onepiece::nodemanager
