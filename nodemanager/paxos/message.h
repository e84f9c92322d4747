// The messages between replicas. Any message may be lost, repeated, delayed or reordered.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos {

/// Asks whether the receiver would promise `ballot`. The question changes nothing at the receiver,
/// so a replica that comes back from a partition does not depose a healthy leader (Ongaro's thesis,
/// 9.6).
struct PreVote {
  Ballot ballot;    ///< The ballot that the sender would use.
  Slot chosen;      ///< The sender knows slots up to it to be chosen.
  Ballot released;  ///< See Prepare.
};

struct PreVoteReply {
  Ballot ballot;  ///< The PreVote's.
  bool granted = false;
  Ballot promised;  ///< What the sender has promised.
  Slot chosen;      ///< The sender knows slots up to it to be chosen.
};

/// Phase 1a for all slots after `chosen` (Lamport, Paxos Made Simple, 2.2 and 3).
struct Prepare {
  Ballot ballot;
  Slot chosen;
  /// The ballot of a leader that gave up its lease and asked the sender to lead. A lease that was
  /// granted to this ballot no longer binds.
  Ballot released;
};

/// Phase 1b. When granted, `accepted` is everything that the sender has accepted after
/// Prepare::chosen, which is never more than a leader's window. The sender refuses when another's
/// lease binds it, when it has promised a higher ballot, or when it knows more chosen slots.
struct Promise {
  Ballot ballot;  ///< The Prepare's.
  bool granted = false;
  Ballot promised;
  Slot chosen;
  std::vector<AcceptedEntry> accepted;
};

/// The hash of a replica's state after `slot`. Slot 0: no hash. Consensus carries hashes in Accept
/// and Accepted, and decides nothing by them (nodemanager/replication/state_hashes.h).
struct StateHash {
  Slot slot;
  std::uint32_t hash = 0;
  friend bool operator==(const StateHash&, const StateHash&) = default;
};

/// Phase 2a for the slots first, first + 1, … An Accept is also the heartbeat (then `entries` may
/// be empty), and tells what is chosen.
struct Accept {
  Ballot ballot;
  Slot first = kFirstSlot;
  std::vector<LogEntry> entries;
  Slot chosen;
  Time sent{};       ///< The leader's clock. The answer echoes it.
  StateHash agreed;  ///< The newest hash that a majority of the voters has.
};

/// Phase 2b. When granted, the sender has accepted every slot up to `match` at `ballot` or knows it
/// to be chosen, and it has granted a lease that began, by the leader's clock, at `sent`. The
/// sender refuses when `promised` is higher than `ballot`.
struct Accepted {
  Ballot ballot;  ///< The Accept's.
  bool granted = false;
  Ballot promised;
  Slot match;
  Time sent{};                ///< The Accept's.
  Time local{};               ///< The sender's clock. The leader measures its drift.
  std::uint32_t version = 0;  ///< Highest LogEntry::version that the sender can apply.
  StateHash hashed;           ///< The newest hash of the sender's state.
};

/// Replaces the state of a replica whose next slot has left the leader's log. The replica answers
/// with Accepted.
struct InstallSnapshot {
  Ballot ballot;
  std::shared_ptr<const Snapshot> snapshot;
  Time sent{};
};

/// A replica without a seat asks for the log and for the seat of its name. It sends this to every
/// address that it knows, until it has the seat. A voter sends it too when it may have lost its
/// seat, or when its seat has another address than its own.
struct Join {
  std::string name, address;
  Slot match;
  std::uint32_t version = 0;
};

/// A leader that steps down asks the receiver to lead now. The lease of ballot `released` has
/// ended.
struct TakeOver {
  Ballot released;
};

/// Asks the leader up to which slot a reader must have applied the log. `request` is the sender's
/// own number.
struct ReadIndexRequest {
  std::uint64_t request = 0;
};

/// When granted: after the request came, no other leader had chosen anything after `index` that a
/// client had an answer to, and `index` is chosen. The sender refuses when it does not lead, and
/// when it ceases to lead before it knows.
struct ReadIndex {
  std::uint64_t request = 0;  ///< The ReadIndexRequest's.
  bool granted = false;
  Slot index;
};

struct Message {
  ReplicaId from, to;
  std::variant<PreVote, PreVoteReply, Prepare, Promise, Accept, Accepted, InstallSnapshot, Join,
               TakeOver, ReadIndexRequest, ReadIndex>
      body;
};

}  // namespace onepiece::paxos
