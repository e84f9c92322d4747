#include "tests/nodemanager/paxos/sim/invariants.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {
namespace {

std::string Text(Ballot ballot) {
  return absl::StrCat(ballot.round, "/", absl::Hex(ballot.replica.value));
}

std::uint64_t HashOf(std::uint64_t hash, const std::string& text) {
  hash = Mix(hash, text.size());
  for (std::size_t at = 0; at < text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min<std::size_t>(8, text.size() - at));
    hash = Mix(hash, word);
  }
  return hash;
}

std::vector<ReplicaId> Voters(const Members& members) {
  std::vector<ReplicaId> voters;
  for (const Seat& seat : members.seats) {
    if (seat.replica != ReplicaId{}) voters.push_back(seat.replica);
  }
  std::sort(voters.begin(), voters.end());
  return voters;
}

bool ChangesOneVoter(const Members& before, const Members& after) {
  const auto a = Voters(before);
  const auto b = Voters(after);
  std::vector<ReplicaId> either;
  std::set_symmetric_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(either));
  return either.size() <= 1;
}

}  // namespace

void Invariants::Fail(const char* invariant, std::string detail) {
  if (!violation_.found()) violation_ = {invariant, std::move(detail)};
}

std::uint64_t Invariants::HashOf(const LogEntry& entry) {
  std::uint64_t hash = Mix(static_cast<std::uint64_t>(entry.kind) + 1, entry.version);
  if (entry.payload != nullptr) hash = sim::HashOf(hash, *entry.payload);
  for (const Seat& seat : entry.members.seats) {
    hash = sim::HashOf(sim::HashOf(Mix(hash, seat.replica.value), seat.name), seat.address);
  }
  return hash;
}

void Invariants::Bootstrapped(const DurableState& state) {
  for (const AcceptedEntry& first : state.log) {
    slots_.push_back({HashOf(first.entry), 0});
    members_.emplace_back(first.slot, first.entry.members);
  }
}

void Invariants::BeginGeneration(const DurableState& state, std::uint64_t hash) {
  // A survivor may have accepted slots that nobody has applied. They are chosen now.
  const std::size_t known = state.snapshot.index.value;
  while (slots_.size() < known) slots_.push_back({});
  slots_.resize(known);
  if (known > 0) slots_.back().state = hash;
  for (const AcceptedEntry& first : state.log) slots_.push_back({HashOf(first.entry), 0});
  votes_.clear();
  proposed_.clear();
  members_ = {{state.snapshot.index, state.snapshot.members}};
}

void Invariants::BecomesDurable(ReplicaId replica, const DurableState& before,
                                const Writes& writes) {
  // A promise binds even when the disk has forgotten it.
  Ballot& promised = promises_[replica];
  promised = std::max(promised, before.promised);
  if (writes.promise && writes.promised < promised) {
    return Fail(kPromise,
                absl::StrCat("the promise ", Text(promised), " falls to ", Text(writes.promised)));
  }
  for (const AcceptedEntry& accepted : writes.accepted) {
    if (accepted.ballot < promised) {
      return Fail(kPromise,
                  absl::StrCat("slot ", accepted.slot.value, " accepted under ",
                               Text(accepted.ballot), " below the promise ", Text(promised)));
    }
    if (votes_.size() <= accepted.slot.value) votes_.resize(accepted.slot.value + 1);
    std::vector<Vote>& votes = votes_[accepted.slot.value];
    const std::uint64_t hash = HashOf(accepted.entry);
    bool known = false;
    for (const Vote& vote : votes) {
      if (vote.ballot != accepted.ballot) continue;
      if (vote.hash != hash) {
        return Fail(kOneValuePerBallot, absl::StrCat("slot ", accepted.slot.value, " under ballot ",
                                                     Text(accepted.ballot), " has two values"));
      }
      known = known || vote.replica == replica;
    }
    if (!known) votes.push_back({replica, accepted.ballot, hash});
    // A leader that crashes before anybody else hears of a change may propose it again.
    if (accepted.entry.kind == LogEntry::Kind::kMembers && accepted.slot > chosen())
      proposed_.emplace_back(accepted.slot, accepted.entry.members);
  }
  if (writes.promise) promised = writes.promised;
  if (writes.install) CheckKept(before, writes);
}

// Slots that stay below a snapshot are sent to peers that lag, so they must hold what was chosen.
void Invariants::CheckKept(const DurableState& before, const Writes& writes) {
  const auto check = [&](const AcceptedEntry& kept) {
    if (kept.slot <= writes.drop_through || kept.slot > writes.install->index) return;
    if (kept.slot > chosen() || slots_[kept.slot - kFirstSlot].entry == HashOf(kept.entry)) return;
    Fail(kOneValue, absl::StrCat("slot ", kept.slot.value, " stays under the snapshot of ",
                                 writes.install->index.value, " with what was not chosen"));
  };
  const auto overwritten = [&](Slot slot) {
    return std::any_of(writes.accepted.begin(), writes.accepted.end(),
                       [&](const AcceptedEntry& accepted) { return accepted.slot == slot; });
  };
  for (const AcceptedEntry& kept : before.log) {
    if (!overwritten(kept.slot)) check(kept);
  }
  std::for_each(writes.accepted.begin(), writes.accepted.end(), check);
}

void Invariants::Says(const Message& message, const DurableState& disk) {
  if (const auto* promise = std::get_if<Promise>(&message.body)) {
    if (promise->granted && disk.promised < promise->ballot) {
      Fail(kDurable, absl::StrCat("promises ", Text(promise->ballot), ", the disk has ",
                                  Text(disk.promised)));
    }
  } else if (const auto* accepted = std::get_if<Accepted>(&message.body)) {
    if (!accepted->granted) return;
    const Slot last =
        std::max(disk.snapshot.index, disk.log.empty() ? Slot{} : disk.log.back().slot);
    if (disk.promised < accepted->ballot || last < accepted->match) {
      Fail(kDurable, absl::StrCat("accepts to slot ", accepted->match.value, " under ",
                                  Text(accepted->ballot), ", the disk has slot ", last.value,
                                  " and ", Text(disk.promised)));
    }
  } else if (const auto* prepare = std::get_if<Prepare>(&message.body)) {
    if (disk.promised < prepare->ballot) {
      Fail(kDurable, absl::StrCat("prepares ", Text(prepare->ballot), ", the disk has ",
                                  Text(disk.promised)));
    }
  } else if (const auto* accept = std::get_if<Accept>(&message.body)) {
    Slot slot = accept->first;
    for (const LogEntry& entry : accept->entries) {
      if (entry.kind == LogEntry::Kind::kMembers && slot > chosen()) {
        proposed_.emplace_back(slot, entry.members);
      }
      ++slot;
    }
  }
}

bool Invariants::HasVoted(ReplicaId replica, Slot slot, Ballot ballot) const {
  if (slot.value >= votes_.size()) return false;
  const std::vector<Vote>& votes = votes_[slot.value];
  return std::any_of(votes.begin(), votes.end(), [&](const Vote& vote) {
    return vote.replica == replica && vote.ballot == ballot;
  });
}

bool Invariants::HasMajority(Slot slot, std::uint64_t hash) const {
  if (slot.value >= votes_.size()) return false;
  const std::vector<Vote>& votes = votes_[slot.value];
  for (const Vote& vote : votes) {
    if (vote.hash != hash) continue;
    std::size_t voters = 0;
    for (const Vote& other : votes) {
      voters += other.ballot == vote.ballot && members().Votes(other.replica) ? 1 : 0;
    }
    if (voters >= members().quorum()) return true;
  }
  return false;
}

void Invariants::Choose(Slot slot, std::uint64_t hash, const LogEntry& entry) {
  if (!HasMajority(slot, hash)) {
    return Fail(kMajority,
                absl::StrCat("slot ", slot.value, " was applied first, and is not on the ",
                             "disks of ", members().quorum(), " voters"));
  }
  slots_.push_back({hash, 0});
  std::erase_if(proposed_, [slot](const auto& proposed) { return proposed.first <= slot; });
  if (entry.kind != LogEntry::Kind::kMembers) return;
  if (!ChangesOneVoter(members(), entry.members)) {
    return Fail(kMembers, absl::StrCat("slot ", slot.value, " changes several voters"));
  }
  members_.emplace_back(slot, entry.members);
  ++changes_;
}

void Invariants::Applies(ReplicaId replica, Slot slot, const LogEntry& entry) {
  const std::uint64_t hash = HashOf(entry);
  if (slot > chosen() + 1) {
    Fail(kContiguous,
         absl::StrCat("slot ", slot.value, " is applied before slot ", (chosen() + 1).value));
  } else if (slot == chosen() + 1) {
    Choose(slot, hash, entry);
  } else if (slots_[slot - kFirstSlot].entry != hash) {
    Fail(kOneValue,
         absl::StrCat("slot ", slot.value, " has another value at ", absl::Hex(replica.value)));
  }
}

void Invariants::HasState(ReplicaId replica, Slot slot, std::uint64_t hash) {
  if (slot == Slot{}) return;
  if (slot > chosen()) {
    return Fail(kContiguous, absl::StrCat(absl::Hex(replica.value), " has a state after slot ",
                                          slot.value, ", which nobody applied"));
  }
  // An empty state has the hash 0 too, which does no harm.
  std::uint64_t& known = slots_[slot - kFirstSlot].state;
  if (known == 0) known = hash;
  if (known != hash) {
    Fail(kSameState, absl::StrCat(absl::Hex(replica.value), " differs after slot ", slot.value));
  }
}

void Invariants::Leads(ReplicaId replica, std::uint64_t life, Ballot ballot) {
  const auto [leader, first] =
      leaders_.try_emplace(Mix(Mix(1, ballot.round), ballot.replica.value), replica, life);
  if (first || leader->second == std::pair{replica, life}) return;
  Fail(kOneLeader,
       absl::StrCat("ballot ", Text(ballot), " is led by ", absl::Hex(replica.value), " in life ",
                    life, " and by ", absl::Hex(leader->second.first.value), " in life ",
                    leader->second.second));
}

void Invariants::Answers(std::uint64_t known, std::uint64_t epoch) {
  if (epoch < known) {
    Fail(kEpoch, absl::StrCat("an answer of epoch ", epoch, " to a call after epoch ", known));
  }
  newest_epoch_ = std::max(newest_epoch_, epoch);
}

std::vector<Members> Invariants::PossibleMembers(Slot known) const {
  std::vector<Members> possible;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (i + 1 < members_.size() && members_[i + 1].first <= known) continue;
    possible.push_back(members_[i].second);
  }
  for (const auto& [slot, members] : proposed_) possible.push_back(members);
  return possible;
}

}  // namespace onepiece::paxos::sim
