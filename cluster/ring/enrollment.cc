// ConsumerCore: enrolls the producers that may write into the ring.
#include <algorithm>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/ring/consumer_core.h"

namespace onepiece::ring {
namespace {

// After this long without a message, a producer may lose its place to another one. A producer of
// another host that died, or whose good-bye was lost, looks the same as one that is silent.
constexpr base::Duration kSilence = std::chrono::minutes(1);
// How many producers that said good-bye are remembered as owners of a shared segment.
constexpr std::size_t kMaxLeft = 32;

}  // namespace

absl::StatusOr<std::shared_ptr<ConsumerCore::ActiveSegment>> ConsumerCore::NewSegment() {
  Generation generation;
  {
    const base::MutexLock lock(mutex_);
    generation = Generation(++last_generation_.value);
  }
  const Layout layout{.capacity_bytes = options_.capacity_bytes, .slots = options_.slots};
  auto active = std::make_shared<ActiveSegment>();
  ONEPIECE_ASSIGN_OR_RETURN(
      active->segment,
      Segment::Create(fabric_, layout, options_.label, doorbell_, options_.shape, generation));
  return active;
}

absl::StatusOr<ProducerGrant> ConsumerCore::Enroll(const ProducerIdentity& identity) {
  auto grant = TryEnroll(identity);
  if (absl::IsResourceExhausted(grant.status()) && MakeRoom()) grant = TryEnroll(identity);
  return grant;
}

// Fences the producer that has been silent longest, if it was silent for long enough and the
// backend can fence it. If it lives after all, its next send says `reconnect`, and it asks again.
bool ConsumerCore::MakeRoom() {
  std::shared_ptr<Owner> silent;
  {
    const base::MutexLock lock(mutex_);
    base::MonotonicTime oldest = clock_.Now() - base::Scaled(kSilence);
    for (const auto& [id, owner] : owners_) {
      if (owner->fenced || owner->record->health.last_seen > oldest) continue;
      oldest = owner->record->health.last_seen;
      silent = owner;
    }
  }
  if (silent == nullptr || !silent->access->Revoke()) return false;
  Trash trash;
  const base::MutexLock lock(mutex_);
  if (!silent->fenced) {
    silent->fenced = true;
    ++counters_.owners_fenced;
    if (!shared()) Retire(silent->home, trash);
  }
  return true;
}

absl::StatusOr<ProducerGrant> ConsumerCore::TryEnroll(const ProducerIdentity& identity) {
  std::shared_ptr<ActiveSegment> active;
  std::vector<std::shared_ptr<Owner>> former;
  Trash trash;
  {
    const base::MutexLock lock(mutex_);
    ForgetGoneOwners(trash);
    ONEPIECE_RETURN_IF_ERROR(MayEnroll(identity));
    if (shared()) active = active_.front();  // There is one, since MayEnroll refuses otherwise.
    former = OwnersOf(identity.producer_id);
  }
  const std::vector<std::shared_ptr<Owner>> before = former;
  // The mutex is free here: memory, a connection and a fence may take the backend milliseconds.
  if (active == nullptr) {
    ONEPIECE_ASSIGN_OR_RETURN(active, NewSegment());
  }
  ONEPIECE_ASSIGN_OR_RETURN(std::unique_ptr<fabric::Access> access,
                            active->segment->region().Accept(identity.offer));
  // When the same process asks again, it has destroyed its former Producer. Revoke fences what that
  // one had under way; on a backend that cannot revoke, nothing is under way without a channel. A
  // former process stays an owner of the shared segment until it is dead or times out. A segment of
  // its own is simply left to it.
  std::erase_if(former, [&](const std::shared_ptr<Owner>& owner) {
    return shared() && !owner->access->Revoke() && owner->access->peer() != identity.offer.peer;
  });
  const base::MutexLock lock(mutex_);
  if (shared() && (active_.empty() || active != active_.front())) {
    trash.push_back(std::move(access));
    return base::MakeError(absl::StatusCode::kUnavailable, "RING_MOVED",
                           "the ring moved while the producer enrolled; ask again");
  }
  ForgetGoneOwners(trash);
  if (absl::Status refused = MayEnroll(identity); !refused.ok()) {
    trash.push_back(std::move(access));
    return refused;
  }
  // Another call for the same producer, whose answer is late, may have enrolled it meanwhile. That
  // enrollment is replaced too.
  if (!shared()) {
    former = OwnersOf(identity.producer_id);
  } else if (std::ranges::any_of(OwnersOf(identity.producer_id), [&](const auto& owner) {
               return std::ranges::find(before, owner) == before.end();
             })) {
    trash.push_back(std::move(access));
    return base::MakeError(absl::StatusCode::kUnavailable, "ADMISSION_OVERTAKEN",
                           "another call enrolled the producer meanwhile; ask again");
  }
  (void)dedup_.Enroll(identity.producer_id, identity.incarnation);
  for (const std::shared_ptr<Owner>& owner : former) {
    owner->fenced = true;
    if (!shared()) Retire(owner->home, trash);
  }
  do {
    ++last_owner_;
  } while (last_owner_ == 0 || owners_.contains(last_owner_));
  const ProducerGrant grant{.region = access->remote(),
                            .shape = options_.shape,
                            .owner = last_owner_,
                            .generation = active->segment->generation(),
                            .capacity_bytes = options_.capacity_bytes,
                            .slots = options_.slots};
  if (!shared()) active_.push_back(active);
  owners_[last_owner_] = std::make_shared<Owner>(Owner{.identity = identity,
                                                       .home = std::move(active),
                                                       .record = RecordOf(identity),
                                                       .access = std::move(access)});
  // A consumer that sleeps publishes that in the new segment too.
  if (!shared()) doorbell_->Ring();
  return grant;
}

std::vector<std::shared_ptr<ConsumerCore::Owner>> ConsumerCore::OwnersOf(
    ProducerId producer_id) const {
  std::vector<std::shared_ptr<Owner>> found;
  for (const auto& [id, owner] : owners_) {
    if (!owner->fenced && owner->identity.producer_id == producer_id) found.push_back(owner);
  }
  return found;
}

absl::Status ConsumerCore::MayEnroll(const ProducerIdentity& identity) {
  if (shut_) {
    return base::MakeError(absl::StatusCode::kUnavailable, "RING_SHUT",
                           "the ring takes no more messages");
  }
  if (dedup_.IsStale(identity.producer_id, identity.incarnation)) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "STALE_INCARNATION",
                           "producer " + std::to_string(identity.producer_id.value) +
                               " was enrolled with incarnation " +
                               std::to_string(identity.incarnation.value) + " or a later one");
  }
  // The owners that this enrollment replaces make room, and so do dead ones. PeerIsDead costs a
  // system call, so it is asked only when the ring seems full.
  const auto stays = [&](const auto& entry) {
    const Owner& owner = *entry.second;
    const bool replaced = owner.identity.producer_id == identity.producer_id &&
                          (!shared() || owner.access->peer() == identity.offer.peer);
    return !owner.fenced && !owner.left.has_value() && !replaced;
  };
  const auto lives = [&](const auto& entry) {
    return stays(entry) && !entry.second->access->PeerIsDead();
  };
  if ((std::ranges::count_if(owners_, stays) >= std::ptrdiff_t{options_.max_producers} &&
       std::ranges::count_if(owners_, lives) >= std::ptrdiff_t{options_.max_producers}) ||
      owners_.size() >= 2 * std::size_t{options_.max_producers}) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_OWNERS",
                           "the ring has " + std::to_string(owners_.size()) + " producers already");
  }
  if (!shared() && TooManyRetired()) {
    return base::MakeError(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_OWNERS",
        "messages of producers that have left hold as much memory as the ring may take");
  }
  return absl::OkStatus();
}

absl::Status ConsumerCore::Dismiss(ProducerId producer_id, Incarnation incarnation) {
  std::vector<std::shared_ptr<Owner>> found;
  {
    const base::MutexLock lock(mutex_);
    found = OwnersOf(producer_id);
  }
  for (const auto& owner : found) {
    if (owner->identity.incarnation != incarnation) continue;
    // The fence ends what the producer had under way on a network.
    const bool fenced = owner->access->Revoke();
    Trash trash;
    const base::MutexLock lock(mutex_);
    if (owner->left.has_value()) break;
    if (shared() && !fenced) {
      // On shm nobody can check that the producer is gone: the good-bye may have been said for it,
      // by somebody who read its name in the ring's health. Its place is free, but it stays an
      // owner. If it were forgotten, it would go on sending, the ring would drop its messages as an
      // unknown owner's, and it would take each for delivered.
      Segment& segment = *owner->home->segment;
      const auto tail = segment.ReadTail();
      owner->left = tail.has_value() ? tail->seq : segment.head().seq + options_.slots;
      FenceOldestLeft();
      return absl::OkStatus();
    }
    owner->fenced = true;
    if (!shared()) Retire(owner->home, trash);
    return absl::OkStatus();
  }
  return base::MakeError(absl::StatusCode::kNotFound, "UNKNOWN_PRODUCER",
                         "producer " + std::to_string(producer_id.value) + " is not enrolled");
}

// Bounds the owners that have said good-bye.
void ConsumerCore::FenceOldestLeft() {
  std::shared_ptr<Owner> oldest;
  std::size_t count = 0;
  for (const auto& [id, owner] : owners_) {
    if (!owner->left.has_value() || owner->fenced) continue;
    ++count;
    if (oldest == nullptr || *owner->left < *oldest->left) oldest = owner;
  }
  // They leave room for producers that come, and for those that left messages behind.
  if (count > std::min(kMaxLeft, std::size_t{options_.max_producers} / 2)) oldest->fenced = true;
}

// Forgets a fenced owner once everything that it may have published has been consumed. Until then
// its slots must be told from those of an unknown owner.
void ConsumerCore::ForgetGoneOwners(Trash& trash) {
  if (!shared() || active_.empty()) return;  // Owners of a segment go with it.
  Segment& segment = *active_.front()->segment;
  const std::uint64_t lock_word = segment.ReadLock();
  const auto tail = segment.ReadTail();
  for (auto it = owners_.begin(); it != owners_.end();) {
    Owner& owner = *it->second;
    const bool holds_lock = lock_word != 0 && LockOwner(lock_word) == it->first;
    const bool gone = owner.fenced && !holds_lock && owner.until_seq.has_value() &&
                      segment.head().seq >= *owner.until_seq;
    if (owner.fenced && !holds_lock && !owner.until_seq.has_value() && tail.has_value()) {
      owner.until_seq = tail->seq;
    }
    if (gone) trash.push_back(std::move(it->second));
    it = gone ? owners_.erase(it) : std::next(it);
  }
}

}  // namespace onepiece::ring
