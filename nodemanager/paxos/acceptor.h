// The part of a replica that lives on its disk: what it promised, accepted and knows to be chosen.
#pragma once

#include <memory>

#include "nodemanager/paxos/entry_log.h"
#include "nodemanager/paxos/replica.h"

namespace onepiece::paxos {

/// The acceptor and learner of Multi-Paxos (docs/consensus.md, "The log"). It knows no roles and
/// sends nothing. It puts what must be durable into Outputs::writes.
///
/// Ownership: owns the log and the snapshot.
/// Threading: thread-confined.
/// Invariants: promised() and chosen() never fall. log().first() <= chosen() + 1 and
/// chosen() <= match() <= log().last().
class Acceptor {
 public:
  /// Restores what `state` holds. If `state` holds a promise, the acceptor binds itself for
  /// `lease`, because it may have granted a lease before it stopped.
  Acceptor(DurableState state, Duration lease, Time now);

  [[nodiscard]] ReplicaId id() const { return id_; }
  [[nodiscard]] Ballot promised() const { return promised_; }
  [[nodiscard]] Slot chosen() const { return chosen_; }
  /// Each slot up to match() is accepted at promised() or known to be chosen.
  [[nodiscard]] Slot match() const { return match_; }
  [[nodiscard]] const EntryLog& log() const { return log_; }
  [[nodiscard]] const Members& members() const { return members_; }
  [[nodiscard]] const std::shared_ptr<const Snapshot>& snapshot() const { return snapshot_; }

  /// True while a lease that was granted to another replica forbids a vote for `ballot`. A lease of
  /// ballot `released` does not count, because its leader gave it up.
  [[nodiscard]] bool IsBound(Time now, Ballot ballot, Ballot released) const;
  [[nodiscard]] Time bound_until() const { return bound_until_; }
  /// True when a candidate that knows slots up to `chosen` to be chosen may have this replica's
  /// vote. That is so when this replica knows no more. It is also so when this replica knows more,
  /// cannot lead itself (`helps`), and its log still holds every slot after `chosen`.
  [[nodiscard]] bool KnowsEnough(Slot chosen, bool helps) const;
  /// The rule of phase 1: true when this replica may promise `ballot` to such a candidate.
  [[nodiscard]] bool MayPromise(Time now, Ballot ballot, Slot chosen, Ballot released,
                                bool helps = false) const;
  /// Promises `ballot`.
  /// REQUIRES: MayPromise() or TakeBallot() allows it.
  void Promise(Ballot ballot, Outputs& out);
  /// Grants the lease of `ballot`.
  /// REQUIRES: ballot == promised().
  void Bind(Time now, Ballot ballot);

  /// The rule of phase 2: returns false when a higher ballot was promised, and otherwise promises
  /// `ballot`.
  bool TakeBallot(Ballot ballot, Outputs& out);
  /// Stores those of the entries that come after match(). Stores nothing when they begin after
  /// match() + 1, because a gap would follow.
  /// REQUIRES: TakeBallot(ballot).
  void Accept(Ballot ballot, Slot first, const std::vector<LogEntry>& entries, Outputs& out);
  /// Stores the next entry of this replica as leader.
  /// REQUIRES: slot == match() + 1.
  void AcceptOwn(Ballot ballot, Slot slot, LogEntry entry, Outputs& out);
  /// Learns from the leader that slots up to `slot` are chosen. It believes that only up to
  /// match().
  void Learn(Slot slot, Outputs& out);
  /// Learns from a replica that has promised `promised` and knows slots up to `slot` to be chosen.
  /// Slots that were accepted here at that ballot or a later one hold what is chosen. Returns true
  /// when a slot is newly known to be chosen.
  bool LearnFrom(Ballot promised, Slot slot, Outputs& out);
  /// Records that slots up to `slot` are chosen.
  /// REQUIRES: the log holds them.
  void Choose(Slot slot, Outputs& out);
  /// Replaces the state by a snapshot from the leader. Returns false, and does nothing, unless the
  /// snapshot is newer than all that is known to be chosen.
  bool Install(const std::shared_ptr<const Snapshot>& snapshot, Outputs& out);
  /// Takes the state machine's own snapshot, and keeps `keep` slots behind it in the log.
  void TakeSnapshot(Slot index, std::shared_ptr<const std::string> state, std::size_t keep,
                    Outputs& out);

 private:
  const ReplicaId id_;
  const Duration lease_;
  Ballot promised_;
  std::shared_ptr<const Snapshot> snapshot_;
  EntryLog log_;
  Slot chosen_;
  Slot match_;
  Members members_;  // In force for slot chosen_ + 1.
  Ballot bound_;     // Whose lease binds. One is enough: docs/consensus.md, "Leases".
  Time bound_until_;
};

}  // namespace onepiece::paxos
