// The invariants that must hold at every step, whatever goes wrong. They see what no replica sees:
// every disk, every message, and true time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nodemanager/paxos/message.h"
#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::paxos::sim {

struct Violation {
  std::string invariant;
  std::string detail;
  [[nodiscard]] bool found() const { return !invariant.empty(); }
};

/// Records what happens in a history and checks it. After the first violation its further answers
/// mean nothing.
///
/// Threading: thread-confined.
class Invariants {
 public:
  static constexpr const char* kOneValue = "one value per slot";
  static constexpr const char* kOneValuePerBallot = "one value per slot and ballot";
  static constexpr const char* kMajority = "what is chosen is on the disks of a majority";
  static constexpr const char* kContiguous = "slots are applied once and in order";
  static constexpr const char* kSameState = "equal states at equal slots";
  static constexpr const char* kPromise = "a promise never falls";
  static constexpr const char* kDisk = "a disk holds a log without gaps";
  static constexpr const char* kDurable = "a reply is backed by the disk";
  static constexpr const char* kHeard = "who hears a leader helps nobody to depose it";
  static constexpr const char* kBelief = "a leader counts what is on its voters' disks";
  static constexpr const char* kOneLeader = "one leader per ballot";
  static constexpr const char* kOneLease = "one lease at a time";
  static constexpr const char* kFreshLease = "the holder of the lease knows all that is chosen";
  static constexpr const char* kEpoch = "epochs only grow";
  static constexpr const char* kAcknowledged = "nothing acknowledged is lost";
  static constexpr const char* kVersion = "no entry of an unknown version";
  static constexpr const char* kMembers = "members change by one voter at a time";
  static constexpr const char* kLinearisable = "histories are linearisable";
  static constexpr const char* kProgress = "a healed majority makes progress";
  static constexpr const char* kConverge = "all that is healed comes together";

  void Fail(const char* invariant, std::string detail);
  [[nodiscard]] const Violation& violation() const { return violation_; }

  /// The group begins with `state`.
  void Bootstrapped(const DurableState& state);
  /// Another group begins with `state`, whose snapshot is the state of hash `hash`. All later slots
  /// of the lost group are as if they had never been. What its old replicas do is not to be told.
  void BeginGeneration(const DurableState& state, std::uint64_t hash);
  /// `replica` is about to have `writes` on its disk, which holds `before`.
  void BecomesDurable(ReplicaId replica, const DurableState& before, const Writes& writes);
  /// A replica whose disk holds `disk` says `message`.
  void Says(const Message& message, const DurableState& disk);
  /// `replica` applied `entry`, and had applied all before it.
  void Applies(ReplicaId replica, Slot slot, const LogEntry& entry);
  /// `replica` has the state after `slot`. It got there by applying entries or by a snapshot.
  void HasState(ReplicaId replica, Slot slot, std::uint64_t hash);
  /// The hash of the state after `slot`, or 0 when nobody has shown it.
  [[nodiscard]] std::uint64_t StateAfter(Slot slot) const {
    return slot == Slot{} || slot > chosen() ? 0 : slots_[slot - kFirstSlot].state;
  }
  /// True when `replica` has ever had `slot` on its disk, accepted under `ballot`.
  [[nodiscard]] bool HasVoted(ReplicaId replica, Slot slot, Ballot ballot) const;
  /// In its life number `life`, `replica` leads under `ballot`.
  void Leads(ReplicaId replica, std::uint64_t life, Ballot ballot);
  /// The leader of `ballot` stepped down and asked another replica to lead.
  void GivesUp(Ballot ballot) { given_up_.push_back(ballot); }
  [[nodiscard]] bool IsGivenUp(Ballot ballot) const {
    return std::find(given_up_.begin(), given_up_.end(), ballot) != given_up_.end();
  }
  /// A client was answered with `epoch`. When it called, the newest epoch in any answer was
  /// `known`.
  void Answers(std::uint64_t known, std::uint64_t epoch);
  [[nodiscard]] std::uint64_t newest_epoch() const { return newest_epoch_; }

  /// The newest slot that anybody has applied, and the members in force after it.
  [[nodiscard]] Slot chosen() const { return Slot{slots_.size()}; }
  [[nodiscard]] const Members& members() const { return members_.back().second; }
  /// All members that may be in force for a replica that knows slots up to `known` to be chosen:
  /// those after `known`, all later ones, and those that were proposed and are not decided.
  [[nodiscard]] std::vector<Members> PossibleMembers(Slot known) const;
  /// True when PossibleMembers() knows of the change of members at `slot`.
  [[nodiscard]] bool HasProposed(Slot slot) const {
    return slot <= chosen() || std::any_of(proposed_.begin(), proposed_.end(),
                                           [&](const auto& each) { return each.first == slot; });
  }
  [[nodiscard]] std::uint64_t membership_changes() const { return changes_; }

 private:
  /// `replica` has had an entry of this hash on its disk, accepted under `ballot`.
  struct Vote {
    ReplicaId replica;
    Ballot ballot;
    std::uint64_t hash = 0;
  };
  struct Chosen {
    std::uint64_t entry = 0;  // The hash of the entry.
    std::uint64_t state = 0;  // The hash of the state after it, or 0 when nobody has shown it.
  };
  static std::uint64_t HashOf(const LogEntry& entry);
  [[nodiscard]] bool HasMajority(Slot slot, std::uint64_t hash) const;
  void Choose(Slot slot, std::uint64_t hash, const LogEntry& entry);
  void CheckKept(const DurableState& before, const Writes& writes);

  std::vector<Chosen> slots_;                      // By slot - kFirstSlot.
  std::vector<std::vector<Vote>> votes_;           // By slot.
  std::vector<std::pair<Slot, Members>> members_;  // By the slot that made them.
  std::vector<std::pair<Slot, Members>> proposed_;
  std::unordered_map<std::uint64_t, std::pair<ReplicaId, std::uint64_t>> leaders_;  // By ballot.
  std::unordered_map<ReplicaId, Ballot> promises_;
  std::vector<Ballot> given_up_;
  std::uint64_t newest_epoch_ = 0;
  std::uint64_t changes_ = 0;  // Of members.
  Violation violation_;
};

}  // namespace onepiece::paxos::sim
