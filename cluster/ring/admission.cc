// ConsumerCore: who may write into the ring.
#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/ring/consumer_core.h"

namespace onepiece::ring {

absl::StatusOr<ProducerGrant> ConsumerCore::Admit(const ProducerIdentity& identity) {
  std::shared_ptr<Segment> segment;
  {
    const std::lock_guard lock(mutex_);
    segment = segment_;
  }
  // Outside the mutex: a connection may take the backend milliseconds.
  ONEPIECE_ASSIGN_OR_RETURN(std::unique_ptr<fabric::Access> access,
                            segment->region().Accept(identity.offer));
  const std::lock_guard lock(mutex_);
  if (segment != segment_) {
    return base::MakeError(absl::StatusCode::kUnavailable, "RING_MOVED",
                           "the ring moved while the producer was let in; ask again");
  }
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
        owner.access->peer() == identity.offer.peer) {
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
        (owner.access->Revoke() || owner.access->peer() == identity.offer.peer)) {
      owner.fenced = true;
    }
  }
  do {
    ++last_owner_;
  } while (last_owner_ == 0 || owners_.contains(last_owner_));
  fabric::RemoteRegion region = access->remote();
  owners_[last_owner_] = {.identity = identity, .access = std::move(access)};
  return ProducerGrant{.region = std::move(region),
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
  for (auto& [id, owner] : owners_) Fence(owner, /*suspected=*/false);
}

// True when the owner is fenced, if need be just now because it is dead or suspected.
bool ConsumerCore::Fence(Owner& owner, bool suspected) {
  if (!owner.fenced && (suspected || owner.access->PeerIsDead()) && owner.access->Revoke()) {
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
