// ConsumerCore: who may write into the ring.
#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/ring/consumer_core.h"

namespace onepiece::ring {

absl::StatusOr<ProducerGrant> ConsumerCore::Admit(const ProducerIdentity& identity) {
  ONEPIECE_ASSIGN_OR_RETURN(std::shared_ptr<fabric::Peer> peer, fabric_.Watch(identity.peer));
  if (peer->IsDead()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "PEER_GONE",
                           "the producer's process is dead");
  }
  const std::lock_guard lock(mutex_);
  const auto active = [this] {
    return std::ranges::count_if(owners_, [](const auto& entry) { return !entry.second.fenced; });
  };
  if (active() >= options_.max_owners) SweepDead();
  ForgetGoneOwners();
  // The same process asks again: it has destroyed its former Producer, and with it whatever was in
  // flight. A former process stays an owner until it is dead or has been waited for in vain.
  std::uint64_t replaced = 0;
  for (auto& [id, owner] : owners_) {
    if (!owner.fenced && owner.identity.producer_id == identity.producer_id &&
        owner.identity.peer == identity.peer) {
      ++replaced;
    }
  }
  if (static_cast<std::uint64_t>(active()) - replaced >= options_.max_owners ||
      owners_.size() >= 2 * std::size_t{options_.max_owners}) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_OWNERS",
                           "the ring has " + std::to_string(owners_.size()) + " producers already");
  }
  if (!dedup_.Admit(identity.producer_id, identity.incarnation)) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "STALE_INCARNATION",
                           "producer " + std::to_string(identity.producer_id) +
                               " was admitted with incarnation " +
                               std::to_string(identity.incarnation) + " or a later one");
  }
  for (auto& [id, owner] : owners_) {
    if (owner.identity.producer_id == identity.producer_id &&
        owner.identity.peer == identity.peer) {
      owner.fenced = true;
    }
  }
  do {
    ++last_owner_;
  } while (last_owner_ == 0 || owners_.contains(last_owner_));
  owners_[last_owner_] = {.identity = identity, .peer = std::move(peer)};
  return ProducerGrant{.region = segment_->region().remote(),
                       .owner = last_owner_,
                       .generation = segment_->generation(),
                       .capacity_bytes = options_.capacity_bytes,
                       .slots = options_.slots};
}

absl::Status ConsumerCore::Dismiss(std::uint64_t producer_id, std::uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, owner] : owners_) {
    if (owner.identity.producer_id == producer_id && owner.identity.incarnation == incarnation) {
      owner.fenced = true;
      return absl::OkStatus();
    }
  }
  return base::MakeError(absl::StatusCode::kNotFound, "UNKNOWN_PRODUCER",
                         "producer " + std::to_string(producer_id) + " is not admitted");
}

void ConsumerCore::SweepDead() {
  for (auto& [id, owner] : owners_) NoticeDeath(owner);
}

// True when the owner is fenced, if need be by finding it dead just now.
bool ConsumerCore::NoticeDeath(Owner& owner) {
  if (!owner.fenced && owner.peer->IsDead()) {
    owner.fenced = true;
    ++counters_.owners_fenced;
  }
  return owner.fenced;
}

// A fenced owner is remembered until everything it may have published has been consumed.
void ConsumerCore::ForgetGoneOwners() {
  const std::uint64_t lock_word = segment_->ReadLock();
  const auto tail = segment_->ReadTail();
  for (auto it = owners_.begin(); it != owners_.end();) {
    Owner& owner = it->second;
    const bool holds_lock = lock_word != 0 && LockOwner(lock_word) == it->first;
    const bool gone = owner.fenced && !holds_lock && owner.until_seq.has_value() &&
                      segment_->head().seq >= *owner.until_seq;
    if (owner.fenced && !holds_lock && !owner.until_seq.has_value() && tail.has_value()) {
      owner.until_seq = tail->seq;
    }
    it = gone ? owners_.erase(it) : std::next(it);
  }
}

}  // namespace onepiece::ring
