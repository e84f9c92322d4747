// ConsumerCore: leaves a segment behind. That fences everybody who may still write into it: their
// later writes land in memory that nobody reads.
#include <algorithm>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/ring/consumer_core.h"
#include "spdlog/spdlog.h"

namespace onepiece::ring {
namespace {

// How many retired segments of a shared ring messages may hold at a time. The limit keeps a peer
// that makes the ring move again and again, while nobody takes messages, from using up the host's
// memory.
constexpr std::size_t kMaxRetiredShared = 4;

}  // namespace

// The owners of `active` go with it.
void ConsumerCore::Retire(std::shared_ptr<ActiveSegment> active, Trash& trash) {
  if (active->segment->retired()) return;
  // The generation ends first. A producer that still sees it after its commit says OK. Then its
  // commit came before this store, so the last look below sees the message.
  active->segment->Retire();
  if (shared()) {
    LastLook(active->segment);
  } else {
    TakeRest(active->segment);
  }
  for (auto it = owners_.begin(); it != owners_.end();) {
    const bool here = it->second->home == active;
    if (here) trash.push_back(std::move(it->second));
    it = here ? owners_.erase(it) : std::next(it);
  }
  std::erase(active_, active);
  retired_.push_back(active->segment);
  if (!shared()) ++counters_.lanes_retired;
  trash.push_back(std::move(active));
}

// Takes the committed messages along. The senders of all others see that the generation is over
// before they can say OK. A hole may hide where the next payload starts, so a slot here need not
// start where the one before it ends: its bytes must only lie in order and in bounds.
void ConsumerCore::LastLook(const std::shared_ptr<Segment>& old) {
  std::uint64_t at_least = old->cursor_offset();
  const std::uint64_t end = old->head().seq + options_.slots;
  for (std::uint64_t seq = old->cursor_seq(); seq < end; ++seq) {
    if (old->RawSlotSeq(seq) != seq) continue;
    const auto slot = old->ReadSlot(seq);
    if (!slot.has_value() || slot->state == SlotState::kReserved) {
      ++counters_.abandoned;
      continue;
    }
    if (slot->state == SlotState::kPad) continue;
    const auto owner = owners_.find(slot->owner);
    if (slot->generation != old->generation()) {
      ++counters_.bad_generation;
    } else if (owner == owners_.end() || owner->second->home->segment != old) {
      ++counters_.bad_owner;
    } else if (slot->offset < at_least || !old->Fits(*slot, slot->offset)) {
      ++counters_.bad_structure;
    } else {
      at_least = old->EndOf(*slot);
      drained_.push_back({.segment = old,
                          .slot = *slot,
                          .identity = owner->second->identity,
                          .record = owner->second->record});
    }
  }
}

// The same for a producer's own segment. Its slots follow one another, so the first slot that
// breaks the rules is the end.
void ConsumerCore::TakeRest(const std::shared_ptr<Segment>& old) {
  while (const auto slot = old->Next()) {
    const auto owner = owners_.find(slot->owner);
    if (slot->state == SlotState::kReserved || !old->Fits(*slot, old->cursor_offset()) ||
        slot->generation != old->generation() || owner == owners_.end() ||
        owner->second->home->segment != old) {
      return;
    }
    old->Advance(*slot);
    if (slot->state == SlotState::kPad) continue;
    drained_.push_back({.segment = old,
                        .slot = *slot,
                        .identity = owner->second->identity,
                        .record = owner->second->record});
  }
}

bool ConsumerCore::TooManyRetired() {
  std::erase_if(retired_, [](const auto& segment) { return segment.expired(); });
  return retired_.size() >= (shared() ? kMaxRetiredShared : options_.max_producers);
}

void ConsumerCore::Prepare(bool wanted) {
  if (!wanted) {
    spare_.reset();
  } else if (spare_ == nullptr && shared()) {
    // When there is no memory now, Move tries again.
    if (auto fresh = NewSegment(); fresh.ok()) spare_ = *std::move(fresh);
  }
}

// Moves a shared ring to a fresh segment, which fences all its producers at once.
bool ConsumerCore::Move() {
  if (next_move_.has_value() && clock_.Now() < *next_move_) return false;
  absl::StatusOr<std::shared_ptr<ActiveSegment>> fresh =
      absl::ResourceExhaustedError("too many retired segments hold messages that nobody takes");
  bool too_many = false;
  {
    const base::MutexLock lock(mutex_);
    too_many = TooManyRetired();
  }
  if (!too_many) {
    // The mutex is free here, because making the pages of a large ring takes a while.
    fresh = std::exchange(spare_, nullptr);
    if (*fresh == nullptr) fresh = NewSegment();
  }
  Trash trash;
  {
    const base::MutexLock lock(mutex_);
    if (!fresh.ok()) {
      ++counters_.moves_failed;
      // The next tick cannot do better: messages must be taken or memory freed first. So it waits.
      next_move_ = clock_.Now() + options_.timeouts.Lock() / 2;
      spdlog::error("ring {}: no fresh segment: {}", options_.label, fresh.status().ToString());
      return false;
    }
    if (shut_) return false;
    Retire(active_.front(), trash);
    active_.push_back(*std::move(fresh));
    ++counters_.moves;
    spdlog::warn("ring {}: moved to generation {}, {} messages taken along", options_.label,
                 active_.front()->segment->generation().value, drained_.size());
  }
  doorbell_->Ring();
  return true;
}

// In a ring with a segment per producer, one that breaks the rules loses its own segment, and no
// other producer notices.
bool ConsumerCore::RetireUnusable(Trash& trash) {
  bool any = false;
  for (const std::shared_ptr<ActiveSegment>& active : std::vector(active_)) {
    if (!active->unusable) continue;
    for (const auto& [id, owner] : owners_) {
      if (owner->home != active) continue;
      ++owner->record->health.hostile;
      ++owner->record->health.corrupted;
      spdlog::warn(
          "ring {}: producer {} of {} (process {}) broke the ring's rules; its segment is retired",
          options_.label, owner->identity.producer_id.value, owner->identity.name,
          owner->access->peer().pid);
    }
    ++counters_.hostile;
    Retire(active, trash);
    any = true;
  }
  return any;
}

}  // namespace onepiece::ring
