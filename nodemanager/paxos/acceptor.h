// The half of a replica that is on its disk: what it promised, accepted and knows to be chosen.
#pragma once

#include <memory>

#include "nodemanager/paxos/entry_log.h"
#include "nodemanager/paxos/replica.h"

namespace onepiece::paxos {

/// The acceptor and learner of Lamport's paper. It knows no roles and sends nothing; what must be
/// durable goes to Outputs::writes.
///
/// Ownership   Owns the log and the snapshot.
/// Threading   Thread-confined.
/// Invariants  promised() never falls; chosen() never falls; log().first() <= chosen() + 1;
///             chosen() <= match() <= log().last().
class Acceptor {
 public:
  /// Binds itself for `lease` when it finds a promise: it may have granted one before it stopped.
  Acceptor(DurableState state, Duration lease, Time now);

  [[nodiscard]] ReplicaId id() const { return id_; }
  [[nodiscard]] Ballot promised() const { return promised_; }
  [[nodiscard]] Slot chosen() const { return chosen_; }
  /// All slots up to it are accepted at promised(), or known to be chosen.
  [[nodiscard]] Slot match() const { return match_; }
  [[nodiscard]] const EntryLog& log() const { return log_; }
  [[nodiscard]] const Members& members() const { return members_; }
  [[nodiscard]] const std::shared_ptr<const Snapshot>& snapshot() const { return snapshot_; }

  /// True while a lease that was granted to another replica forbids a vote for `ballot`.
  [[nodiscard]] bool IsBound(Time now, Ballot ballot, Ballot released) const;
  [[nodiscard]] Time bound_until() const { return bound_until_; }
  /// True when a candidate that knows `chosen` slots may have our vote: we know no more, or we do
  /// but cannot lead ourselves (`helps`), and our log tells the rest.
  [[nodiscard]] bool KnowsEnough(Slot chosen, bool helps) const;
  /// The rule of phase 1 for such a candidate.
  [[nodiscard]] bool MayPromise(Time now, Ballot ballot, Slot chosen, Ballot released,
                                bool helps = false) const;
  void Promise(Ballot ballot, Outputs& out);
  /// Grants the lease of `ballot`. REQUIRES: ballot == promised().
  void Bind(Time now, Ballot ballot);

  /// The rule of phase 2: false when a higher ballot was promised; else `ballot` is promised now.
  bool TakeBallot(Ballot ballot, Outputs& out);
  /// Stores the entries after match(); nothing when they begin after match() + 1. REQUIRES: the
  /// ballot was taken.
  void Accept(Ballot ballot, Slot first, const std::vector<Entry>& entries, Outputs& out);
  /// Stores the proposer's own next entry. REQUIRES: slot <= match() + 1.
  void AcceptOwn(Ballot ballot, Slot slot, Entry entry, Outputs& out);
  /// Slots up to `slot`, but not after match(), are chosen.
  void Learn(Slot slot, Outputs& out);
  /// A replica that promised `promised` knows slots up to `slot` to be chosen: then those that were
  /// accepted here at that ballot or a later one hold what is chosen. True when that is news.
  bool LearnFrom(Ballot promised, Slot slot, Outputs& out);
  /// Slots up to `slot` are chosen. REQUIRES: they are in the log.
  void Choose(Slot slot, Outputs& out);
  /// True when the state was replaced: the snapshot is newer than all that is known to be chosen.
  bool Install(const std::shared_ptr<const Snapshot>& snapshot, Outputs& out);
  /// The state machine's own snapshot; keeps `keep` slots behind it.
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
  Ballot bound_;     // Whose lease binds; no other binds besides, see docs/consensus.md.
  Time bound_until_;
};

}  // namespace onepiece::paxos
