// One replica of a Multi-Paxos group as a pure state machine. Messages, calls and the time go in;
// messages, writes and chosen entries come out.
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

struct ReplicaOptions {
  std::string name;           ///< The name of this replica's seat.
  std::string address;        ///< The address that its seat shall have.
  std::uint64_t seed = 1;     ///< Seeds the election jitter.
  std::uint32_t version = 1;  ///< Highest LogEntry::version that this program applies.
  Duration heartbeat = std::chrono::milliseconds(50);
  /// A follower asks for votes when it has heard nothing from a leader for a random time between
  /// these two.
  Duration election_min = std::chrono::milliseconds(400),
           election_max = std::chrono::milliseconds(700);
  /// After a leader's message a follower refuses other ballots for this time, by its own clock. At
  /// most election_min.
  Duration lease = std::chrono::milliseconds(400);
  /// The rates of any two replicas' clocks differ by at most this share. A follower whose clock is
  /// seen outside of it does not count for the lease.
  double max_drift = 0.01;
  /// Limits of what may be proposed and not yet chosen. Beyond them Propose() answers
  /// RESOURCE_EXHAUSTED (LOG_BUSY).
  std::size_t window_slots = 1024, window_bytes = 8 << 20;
  /// Slots that the log keeps behind a snapshot, for peers that lag a little.
  std::size_t keep_slots = 512;
};

enum class Role : std::uint8_t { kLearner, kFollower, kCandidate, kLeader };

struct ChosenEntry {
  Slot slot;
  LogEntry entry;
};

/// What the caller has to do after one or several steps, in this order:
///   1. send `early`;
///   2. make `writes` durable, whole or not at all; if that fails, drop this Outputs, never step
///      this Replica again, and make a new one from the disk;
///   3. send `late`; a message to this replica itself goes into Receive();
///   4. replace the state machine by `restore`, apply `chosen` in order, and answer.
/// Several steps may share one Outputs, so that one sync makes all of them durable (group commit).
/// `restore` and `chosen` need not wait for the writes, because a majority's disks hold what is
/// chosen. The caller may go on stepping while writes are under way: later writes and `late` wait
/// for them, in order.
struct Outputs {
  /// A message whose `to` is 0 goes to every address that the caller knows.
  std::vector<Message> early, late;
  Writes writes;
  std::shared_ptr<const Snapshot> restore;
  std::vector<ChosenEntry> chosen;
  /// Answers to AskReadIndex().
  std::vector<ReadIndex> read_indexes;
  /// True when this replica stopped leading. What it proposed and has not handed out in `chosen`
  /// may still be chosen, or not.
  bool lost_leadership = false;
};

/// A leader's view of one replica. `onepiece cluster status` shows it.
struct Progress {
  ReplicaId replica;
  std::string name, address;
  bool votes = false;
  Slot match;
  std::uint32_t version = 0;
  std::optional<Time> heard;  ///< When the leader sent what the replica answered last.
  bool drifts = false;        ///< Its clock is outside ReplicaOptions::max_drift.
};

/// A replica: acceptor, learner and, at times, candidate or leader.
///
/// Use:
///     Replica replica(options, store.Load(), now);
///     Outputs out;
///     replica.Receive(now, message, out);            // Or Tick(), Propose(), …
///     Do what Outputs says, then wait for a message or for next_deadline().
///
/// Ownership: owns copies of all that it knows. Payloads are shared and constant.
/// Threading: thread-confined. It has no threads, clocks, disks or sockets, and its only randomness
/// is a seeded generator, so the same calls give the same outputs.
/// Blocking: never.
/// Invariants: the promised ballot never falls. Each slot is handed out in Outputs::chosen once and
/// in order, and every replica hands out the same entry for it.
class Replica {
 public:
  /// Restores a replica as it was when `state` was written. The first step hands out what was
  /// chosen after the snapshot.
  /// REQUIRES: state.replica is a replica.
  Replica(ReplicaOptions options, DurableState state, Time now);
  ~Replica();
  Replica(Replica&&) noexcept;
  Replica& operator=(Replica&&) noexcept;

  /// Makes the state that begins a new group. This replica has the seat of its name, and the other
  /// seats are vacant. Slot 1 says so and is chosen by definition.
  /// REQUIRES: seats.FindName(name).
  static DurableState Bootstrap(ReplicaId replica, Members seats, const std::string& name);

  /// Does what is due: heartbeats, elections, a learner's Join. Call it at or after
  /// next_deadline().
  void Tick(Time now, Outputs& out);
  [[nodiscard]] Time next_deadline() const;
  /// Takes a message from any replica of this group, however late it comes. It ignores messages
  /// that make no sense.
  void Receive(Time now, const Message& message, Outputs& out);

  /// Appends a command to the log, or a no-op when `command` is null. The command is chosen when
  /// Outputs::chosen holds its slot.
  /// Errors: UNAVAILABLE (NOT_LEADER), RESOURCE_EXHAUSTED (LOG_BUSY).
  absl::StatusOr<Slot> Propose(Time now, std::shared_ptr<const std::string> command,
                               std::uint32_t version, Outputs& out);
  /// Adds a vacant seat. This call and the next two return the slot of the change, which is
  /// proposed when all slots before it are chosen.
  ///
  /// Errors: those of all three calls are UNAVAILABLE (NOT_LEADER), INVALID_ARGUMENT when `seat`
  /// has no name or is occupied, and FAILED_PRECONDITION with one of MEMBERS_CHANGING (another
  /// change, or the recovery, is under way), LAST_VOTER, LEADERS_SEAT (step down first),
  /// SEAT_EXISTS, NO_SEAT, TOO_MANY_SEATS, NO_QUORUM_LEFT (the voters that answer would not be a
  /// majority afterwards).
  absl::StatusOr<Slot> AddSeat(Time now, const Seat& seat, Outputs& out);
  /// Gives up the seat of `name`.
  absl::StatusOr<Slot> RemoveSeat(Time now, const std::string& name, Outputs& out);
  /// Puts the vacant `seat`, with its name and address, in the place of the seat of `name`.
  absl::StatusOr<Slot> ReplaceSeat(Time now, const std::string& name, const Seat& seat,
                                   Outputs& out);
  /// Ends the lease and asks the voter with the highest match to lead.
  /// Errors: UNAVAILABLE (NOT_LEADER), FAILED_PRECONDITION (NO_SUCCESSOR: no voter is close
  /// enough).
  absl::Status StepDown(Time now, Outputs& out);
  /// Stops leading and never leads again. The caller does this when the state machine has met an
  /// entry of a newer version.
  void RefuseToLead(Time now, Outputs& out);
  /// Takes the state machine's bytes after slot `index`, which must have been handed out, and
  /// shortens the log.
  void TakeSnapshot(Slot index, std::shared_ptr<const std::string> state, Outputs& out);

  /// True when, at `now`, no other leader can have chosen anything that this replica has not handed
  /// out. A reader first looks at the state and then asks; a true answer makes what it saw
  /// linearisable. After a false answer the read must wait for a no-op of its own (Propose).
  [[nodiscard]] bool LeaseCovers(Time now) const;
  /// Asks the leader for the slot up to which this replica must have handed out the log before a
  /// read that began earlier than this call. The answer comes in Outputs::read_indexes, or is lost:
  /// then ask again, under the same number. `request` must be a number that no process of this
  /// replica has used for another read. Returns false when this replica leads, or knows no leader.
  bool AskReadIndex(std::uint64_t request, Outputs& out);

  [[nodiscard]] ReplicaId id() const;
  [[nodiscard]] Role role() const;
  /// True when this replica leads and has handed out all that earlier leaders may have chosen.
  [[nodiscard]] bool IsReady() const;
  /// The leader that this replica last heard and still believes in, or 0.
  [[nodiscard]] ReplicaId leader() const;
  [[nodiscard]] Ballot promised() const;
  [[nodiscard]] Slot chosen() const;
  [[nodiscard]] Slot last_slot() const;
  [[nodiscard]] Slot first_slot() const;  ///< Oldest slot in the log.
  [[nodiscard]] const std::shared_ptr<const Snapshot>& snapshot() const;
  [[nodiscard]] const Members& members() const;
  /// The highest LogEntry::version that a leader may propose, because every voter is known to apply
  /// it. At least 1.
  [[nodiscard]] std::uint32_t common_version() const;
  /// All replicas to which this leader sends, and itself. Empty unless it leads.
  [[nodiscard]] std::vector<Progress> progress() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::paxos
