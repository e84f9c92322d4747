#include "nodemanager/paxos/acceptor.h"

#include <algorithm>
#include <utility>

#include "cluster/base/check.h"
#include "nodemanager/paxos/mutant.h"

namespace onepiece::paxos {

Acceptor::Acceptor(DurableState state, Duration lease, Time now)
    : id_(state.replica),
      lease_(lease),
      promised_(state.promised),
      snapshot_(std::make_shared<const Snapshot>(std::move(state.snapshot))),
      log_(std::move(state.log), snapshot_->index + 1),
      chosen_(std::max(state.chosen, snapshot_->index)),
      match_(chosen_),
      members_(snapshot_->members),
      bound_(promised_),
      bound_until_(now) {
  ONEPIECE_CHECK(id_ != ReplicaId{});
  ONEPIECE_CHECK(log_.first() <= snapshot_->index + 1 && log_.last() >= chosen_);
  for (Slot slot = snapshot_->index + 1; slot <= chosen_; ++slot) {
    const LogEntry& entry = log_.At(slot).entry;
    if (entry.kind == LogEntry::Kind::kMembers) members_ = entry.members;
  }
  // Slots accepted at the promised ballot count as before the restart.
  while (match_ < log_.last() && log_.At(match_ + 1).ballot == promised_) ++match_;
  if (promised_ != Ballot{} && !Is(Mutant::kNoBindingAfterRestart)) bound_until_ = now + lease;
}

bool Acceptor::IsBound(Time now, Ballot ballot, Ballot released) const {
  if (Is(Mutant::kNoLeaseBinding)) return false;
  return now < bound_until_ && bound_.replica != ballot.replica && bound_ != released;
}

// A replica that knows more than the candidate must still hold the slot after `chosen`. Otherwise
// its promise could not report all that it knows, and the candidate could propose other entries for
// chosen slots.
bool Acceptor::KnowsEnough(Slot chosen, bool helps) const {
  return chosen_ <= chosen || (helps && log_.first() <= chosen + 1);
}

bool Acceptor::MayPromise(Time now, Ballot ballot, Slot chosen, Ballot released, bool helps) const {
  if (ballot <= promised_ && !Is(Mutant::kPromiseLowerBallot)) return false;
  return KnowsEnough(chosen, helps) && !IsBound(now, ballot, released);
}

void Acceptor::Promise(Ballot ballot, Outputs& out) {
  promised_ = ballot;
  match_ = chosen_;  // Nothing is accepted at the new ballot yet.
  out.writes.promise = true;
  out.writes.promised = ballot;
}

void Acceptor::Bind(Time now, Ballot ballot) {
  bound_ = ballot;
  bound_until_ = now + lease_;
}

bool Acceptor::TakeBallot(Ballot ballot, Outputs& out) {
  if (ballot < promised_) return Is(Mutant::kAcceptLowerBallot);
  if (ballot > promised_) Promise(ballot, out);
  return true;
}

void Acceptor::Accept(Ballot ballot, Slot first, const std::vector<LogEntry>& entries,
                      Outputs& out) {
  if (entries.empty()) return;
  const Slot end = first + entries.size();
  const Slot reach = Is(Mutant::kMatchJumpsGap) ? log_.last() : match_;
  if (first > reach + 1) return;  // A gap: the answer names match(), and the leader sends the rest.
  // A slot up to match() holds the same entry already, or is chosen. It is not written again.
  for (Slot slot = std::max(first, match_ + 1); slot < end; ++slot) {
    AcceptedEntry accepted{slot, ballot, entries[slot - first]};
    out.writes.accepted.push_back(accepted);
    log_.Put(std::move(accepted));
  }
  match_ = std::max(match_, end - 1);
}

void Acceptor::AcceptOwn(Ballot ballot, Slot slot, LogEntry entry, Outputs& out) {
  ONEPIECE_CHECK(slot == match_ + 1);
  AcceptedEntry accepted{slot, ballot, std::move(entry)};
  out.writes.accepted.push_back(accepted);
  log_.Put(std::move(accepted));
  match_ = slot;
}

void Acceptor::Learn(Slot slot, Outputs& out) {
  slot = std::min(slot, Is(Mutant::kChosenBeyondMatch) ? log_.last() : match_);
  if (slot > chosen_) Choose(slot, out);
}

bool Acceptor::LearnFrom(Ballot promised, Slot slot, Outputs& out) {
  // Entries at ballots up to `promised` are what chose those slots. An entry that was accepted at
  // that ballot or a later one is therefore the chosen one (docs/consensus.md, "Members").
  Slot known = chosen_;
  while (known < std::min(slot, log_.last()) && log_.At(known + 1).ballot >= promised) ++known;
  if (known == chosen_) return false;
  Choose(known, out);
  return true;
}

void Acceptor::Choose(Slot slot, Outputs& out) {
  for (Slot s = chosen_ + 1; s <= slot; ++s) {
    const LogEntry& entry = log_.At(s).entry;
    if (entry.kind != LogEntry::Kind::kMembers) continue;
    members_ = entry.members;
    out.writes.members_changed = true;
  }
  chosen_ = slot;
  match_ = std::max(match_, slot);
  out.writes.chosen = slot;
}

bool Acceptor::Install(const std::shared_ptr<const Snapshot>& snapshot, Outputs& out) {
  if (snapshot->index <= chosen_) return false;
  snapshot_ = snapshot;
  chosen_ = snapshot->index;
  match_ = std::max(match_, chosen_);
  if (!Is(Mutant::kSnapshotForgetsMembers)) members_ = snapshot->members;
  out.writes.install = snapshot;
  out.writes.chosen = chosen_;
  // Slots up to the snapshot may hold entries that were never chosen. Slots above it are votes, and
  // an acceptor keeps its votes.
  if (!Is(Mutant::kSnapshotKeepsLog) || log_.last() < chosen_) {
    log_.DropThrough(chosen_);
    out.writes.drop_through = std::max(out.writes.drop_through, chosen_);
  }
  return true;
}

void Acceptor::TakeSnapshot(Slot index, std::shared_ptr<const std::string> state, std::size_t keep,
                            Outputs& out) {
  if (index <= snapshot_->index || index > chosen_) return;
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->index = index;
  snapshot->state = std::move(state);
  // The members in force after `index`, which are not members_ when a later change is chosen.
  snapshot->members = snapshot_->members;
  for (Slot slot = snapshot_->index + 1; slot <= index; ++slot) {
    const LogEntry& entry = log_.At(slot).entry;
    if (entry.kind == LogEntry::Kind::kMembers) snapshot->members = entry.members;
  }
  snapshot_ = std::move(snapshot);
  out.writes.install = snapshot_;
  if (log_.first() + keep <= index) {
    log_.DropThrough(index - keep);
    out.writes.drop_through = std::max(out.writes.drop_through, index - keep);
  }
}

}  // namespace onepiece::paxos
