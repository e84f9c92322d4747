#include "nodemanager/replication/state_hashes.h"

#include <algorithm>
#include <bit>

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kBytesPerSlot = 2048;
// Replicas that have answered: seats and learners. The count is small, and others are ignored.
constexpr std::size_t kMaxOthers = 2 * paxos::Members::kMaxSeats;

}  // namespace

bool StateHashes::IsDue(paxos::Slot slot) const {
  const base::MutexLock lock(mutex_);
  return slot != paxos::Slot{} && slot.value % interval_ == 0;
}

void StateHashes::AddOwn(paxos::StateHash own, std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  interval_ =
      std::clamp<std::uint64_t>(std::bit_ceil(bytes / kBytesPerSlot), kMinInterval, kMaxInterval);
  Keep(own_, own);
  uncounted_ = true;
  Compare(own.slot);
}

void StateHashes::ForgetOwn() {
  const base::MutexLock lock(mutex_);
  own_.clear();
  odd_.reset();
}

void StateHashes::Hear(const paxos::Message& message) {
  if (const auto* accept = std::get_if<paxos::Accept>(&message.body)) {
    if (accept->agreed.slot == paxos::Slot{}) return;
    const base::MutexLock lock(mutex_);
    return Agree(accept->agreed);
  }
  const auto* accepted = std::get_if<paxos::Accepted>(&message.body);
  if (accepted == nullptr) return;
  const base::MutexLock lock(mutex_);
  // What was heard of a replica under another version is forgotten: its hashes say nothing, and
  // must not count after its update either.
  if (accepted->version != version_) {
    others_.erase(message.from);
    return;
  }
  if (others_.size() >= kMaxOthers && !others_.contains(message.from)) others_.clear();
  BySlot& hashes = others_[message.from];
  if (accepted->hashed.slot == paxos::Slot{} || Newest(hashes) == accepted->hashed) return;
  Keep(hashes, accepted->hashed);
  uncounted_ = true;
}

void StateHashes::Count(const paxos::Members& members, paxos::ReplicaId self) {
  const base::MutexLock lock(mutex_);
  if (!uncounted_) return;
  uncounted_ = false;
  std::map<paxos::StateHash, std::size_t, decltype([](const auto& a, const auto& b) {
             return std::pair(a.slot, a.hash) < std::pair(b.slot, b.hash);
           })>
      votes;
  const auto add = [&](const BySlot& hashes) {
    for (const auto& [slot, hash] : hashes) ++votes[{slot, hash}];
  };
  for (const paxos::Seat& seat : members.seats) {
    if (seat.replica == paxos::ReplicaId{}) continue;
    if (seat.replica == self) {
      add(own_);
    } else if (const auto other = others_.find(seat.replica); other != others_.end()) {
      add(other->second);
    }
  }
  for (const auto& [hash, count] : votes) {
    if (count >= members.quorum()) Agree(hash);
  }
}

void StateHashes::Stamp(paxos::Message& message) const {
  if (auto* accepted = std::get_if<paxos::Accepted>(&message.body)) {
    accepted->hashed = own();
  } else if (auto* accept = std::get_if<paxos::Accept>(&message.body)) {
    const base::MutexLock lock(mutex_);
    if (others_.contains(message.to)) accept->agreed = Newest(agreed_);
  }
}

paxos::StateHash StateHashes::own() const {
  const base::MutexLock lock(mutex_);
  return Newest(own_);
}

paxos::StateHash StateHashes::agreed() const {
  const base::MutexLock lock(mutex_);
  return Newest(agreed_);
}

std::optional<StateHashes::Odd> StateHashes::odd() const {
  const base::MutexLock lock(mutex_);
  return odd_;
}

void StateHashes::Keep(BySlot& hashes, paxos::StateHash hash) {
  hashes[hash.slot] = hash.hash;
  if (hashes.size() > kKept) hashes.erase(hashes.begin());
}

paxos::StateHash StateHashes::Newest(const BySlot& hashes) {
  if (hashes.empty()) return {};
  return {hashes.rbegin()->first, hashes.rbegin()->second};
}

// This replica may lag: it compares when its own hash after the slot comes.
void StateHashes::Agree(paxos::StateHash agreed) {
  Keep(agreed_, agreed);
  Compare(agreed.slot);
}

void StateHashes::Compare(paxos::Slot slot) {
  const auto own = own_.find(slot);
  const auto agreed = agreed_.find(slot);
  if (odd_ || own == own_.end() || agreed == agreed_.end() || own->second == agreed->second) return;
  odd_ = Odd{slot, own->second, agreed->second};
}

}  // namespace onepiece::nodemanager
