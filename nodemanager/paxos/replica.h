// One replica of a Multi-Paxos group, as a pure state machine: inputs and the time in, outputs out.
//
// Sources: Lamport, "Paxos Made Simple" (ballots, phases 1 and 2, the log); Chandra et al., "Paxos
// Made Live" (leases, snapshots, disks that lose data); Ongaro's thesis, 4 (one change of members
// at a time), 6.4 (leases for reads), 9.6 (pre-vote). docs/consensus.md says what we do and why it
// is safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/paxos/message.h"
#include "nodemanager/paxos/types.h"

namespace onepiece::paxos {

struct Options {
  std::string name;           ///< Of this replica's seat.
  std::string address;        ///< That its seat shall have.
  std::uint64_t seed = 1;     ///< Of the election jitter.
  std::uint32_t version = 1;  ///< Highest Entry::version that this program applies.
  Duration heartbeat = std::chrono::milliseconds(50);
  /// A follower that has heard nothing from a leader for a random time in between asks for votes.
  Duration election_min = std::chrono::milliseconds(400),
           election_max = std::chrono::milliseconds(700);
  /// For so long, by its own clock, a follower refuses other ballots after a leader's message. At
  /// most election_min.
  Duration lease = std::chrono::milliseconds(400);
  /// Clocks of any two replicas run at rates that differ by at most this share. A follower that is
  /// seen outside of it does not count for the lease.
  double max_drift = 0.01;
  /// Slots and bytes proposed and not yet chosen; more: RESOURCE_EXHAUSTED (LOG_BUSY).
  std::size_t window_slots = 1024, window_bytes = 8 << 20;
  /// Slots kept behind a snapshot for peers that lag a little.
  std::size_t keep_slots = 512;
};

enum class Role : std::uint8_t { kLearner, kFollower, kCandidate, kLeader };

struct ChosenEntry {
  Slot slot = 0;
  Entry entry;
};

/// What the caller has to do after one or several steps, in this order:
///   1. send `early`;
///   2. make `writes` durable, whole or not at all; when that fails, drop this Outputs and never
///      step this Replica again (start anew from the disk);
///   3. send `late`; a message to this replica itself goes into Receive();
///   4. replace the state machine by `restore`, apply `chosen` in order, and answer.
/// Several steps may share one Outputs: that is the batching of a group commit.
struct Outputs {
  std::vector<Message> early, late;  ///< `to` 0: to every address the caller knows.
  Writes writes;
  std::shared_ptr<const Snapshot> restore;
  std::vector<ChosenEntry> chosen;
  /// What this replica proposed as leader and has not handed out in `chosen` may or may not come.
  bool lost_leadership = false;
};

/// A leader's view of a replica; what `cluster status` shows.
struct Progress {
  ReplicaId replica = 0;
  std::string name, address;
  bool votes = false;
  Slot match = 0;
  std::uint32_t version = 0;
  std::optional<Time> heard;  ///< When what it answered last was sent.
  bool drifts = false;        ///< Its clock is outside Options::max_drift.
};

/// Ownership   Owns copies of all it knows; payloads are shared and constant.
/// Threading   Thread-confined. No threads, clocks, disks, sockets or randomness inside (but a
///             seeded generator): the same calls give the same outputs.
/// Blocking    Never.
/// Invariants  The promised ballot never falls. A slot is handed out in Outputs::chosen once, in
///             order, and every replica hands out the same entry for it.
class Replica {
 public:
  /// A replica as it was when `state` was written. REQUIRES: state.replica != 0.
  /// What was chosen after its snapshot is handed out by the first step; next_deadline() is `now`.
  Replica(Options options, DurableState state, Time now);
  ~Replica();
  Replica(Replica&&) noexcept;
  Replica& operator=(Replica&&) noexcept;

  /// The state that begins a new group: this replica has the seat of its name, the others are
  /// vacant. Slot 1 says so, and is chosen. REQUIRES: seats.FindName(name).
  static DurableState Bootstrap(ReplicaId replica, Members seats, const std::string& name);

  /// Call at or after next_deadline().
  void Tick(Time now, Outputs& out);
  [[nodiscard]] Time next_deadline() const;
  /// Anything from anyone of this group, however late. Messages that make no sense are ignored.
  void Receive(Time now, const Message& message, Outputs& out);

  /// Appends a command, or with null a no-op, to the log; it is chosen when Outputs::chosen says
  /// so. Errors: UNAVAILABLE (NOT_LEADER), RESOURCE_EXHAUSTED (LOG_BUSY).
  absl::StatusOr<Slot> Propose(Time now, std::shared_ptr<const std::string> command,
                               std::uint32_t version, Outputs& out);
  /// Adds a vacant seat, or gives one up, or gives the seat of `name` another name and address and
  /// vacates it. Refused, FAILED_PRECONDITION: MEMBERS_CHANGING (another change, or the recovery,
  /// is under way), LAST_VOTER, LEADERS_SEAT (step down first), SEAT_EXISTS, NO_SEAT,
  /// TOO_MANY_SEATS, NO_QUORUM_LEFT (the voters that answer would not be a majority afterwards).
  absl::StatusOr<Slot> AddSeat(Time now, const Seat& seat, Outputs& out);
  absl::StatusOr<Slot> RemoveSeat(Time now, const std::string& name, Outputs& out);
  absl::StatusOr<Slot> ReplaceSeat(Time now, const std::string& name, const Seat& seat,
                                   Outputs& out);
  /// Ends the lease and asks the follower that knows most to lead. Errors: UNAVAILABLE
  /// (NOT_LEADER), FAILED_PRECONDITION (NO_SUCCESSOR: nobody is close enough).
  absl::Status StepDown(Time now, Outputs& out);
  /// Stops leading and never leads again: the state machine met an entry of a newer version.
  void RefuseToLead(Time now, Outputs& out);
  /// The state machine's bytes after `index`, which has been handed out: shortens the log.
  void TakeSnapshot(Slot index, std::shared_ptr<const std::string> state, Outputs& out);

  /// True when, at `now`, no other leader can have chosen anything that this replica has not handed
  /// out. Ask after looking at the state: what was seen is then linearisable. When false, the read
  /// must wait for a no-op of its own (Propose).
  [[nodiscard]] bool LeaseCovers(Time now) const;

  [[nodiscard]] ReplicaId id() const;
  [[nodiscard]] Role role() const;
  /// Leading, and all that earlier leaders may have chosen has been handed out.
  [[nodiscard]] bool IsReady() const;
  /// The leader it last heard from and still believes in; 0: none.
  [[nodiscard]] ReplicaId leader() const;
  [[nodiscard]] Ballot promised() const;
  [[nodiscard]] Slot chosen() const;
  [[nodiscard]] Slot last_slot() const;
  [[nodiscard]] Slot first_slot() const;  ///< Oldest slot in the log.
  [[nodiscard]] const std::shared_ptr<const Snapshot>& snapshot() const;
  [[nodiscard]] const Members& members() const;
  /// Highest Entry::version that every voter is known to apply, for the proposer; at least 1.
  [[nodiscard]] std::uint32_t common_version() const;
  /// Leaders only: all replicas it sends to, itself included.
  [[nodiscard]] std::vector<Progress> progress() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::paxos
