// ConsumerCore: breaking locks and skipping holes, always behind a fence; and the thread that does
// it.
//
// Three fences exist: an owner that has said good-bye can do nothing any more; one that is dead or
// suspected is revoked where the backend can do that; from one that may still write, the ring moves
// away to a fresh segment.
#include "cluster/ring/recovery.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "cluster/ring/consumer_core.h"
#include "spdlog/spdlog.h"

namespace onepiece::ring {

base::Duration ConsumerCore::Suspicion::Age(std::uint64_t what_now, base::MonotonicTime now) {
  if (!since.has_value() || what != what_now) {
    what = what_now;
    since = now;
  }
  return now - *since;
}

bool ConsumerCore::Tick(base::MonotonicTime now) {
  Advice lock_advice;
  Advice hole_advice;
  {
    const std::lock_guard lock(mutex_);
    if (!next_sweep_.has_value() || now >= *next_sweep_) {
      next_sweep_ = now + options_.timeouts.Sweep();
      SweepDead();
      ForgetGoneOwners();
    }
    lock_advice = CheckLock(now);
    hole_advice = CheckHole(now);
    if (unusable_) hole_advice = Advice::kMove;
  }
  if (lock_advice == Advice::kMove || hole_advice == Advice::kMove) return Move();
  if (lock_advice == Advice::kNothing && hole_advice == Advice::kNothing) return false;
  doorbell_->Ring();
  return true;
}

ConsumerCore::Advice ConsumerCore::CheckLock(base::MonotonicTime now) {
  const std::uint64_t word = segment_->ReadLock();
  if (word == 0) {
    lock_suspicion_.Clear();
    return Advice::kNothing;
  }
  const base::Duration age = lock_suspicion_.Age(word, now);
  const auto owner = owners_.find(LockOwner(word));
  const bool suspected = age >= options_.timeouts.Lock();
  if (owner == owners_.end() || !Fence(owner->second, suspected)) {
    if (!suspected) return Advice::kNothing;
    spdlog::warn("ring {}: lock held by a live owner {} for too long", options_.label,
                 LockOwner(word));
    return Advice::kMove;
  }
  // The owner is fenced. If it held this lock when that happened, the lock is still as it was; else
  // it is free or somebody else's, and there is nothing to break.
  if (segment_->ReadLock() != word) return Advice::kNothing;
  // Before the lock is free: until then nobody else writes the tail.
  if (!segment_->ReadTail().has_value() && !RepairTail()) return Advice::kMove;
  if (!segment_->BreakLock(word)) return Advice::kMove;
  ++counters_.locks_broken;
  lock_suspicion_.Clear();
  return Advice::kChanged;
}

// The owner died while it wrote the tail. Every slot it could have published was complete before,
// so the tail is where the unbroken chain of slots ends; publishing a reservation of a fenced owner
// is harmless, it is skipped.
bool ConsumerCore::RepairTail() {
  Tail tail{.seq = segment_->cursor_seq(), .offset = segment_->cursor_offset()};
  while (tail.seq - segment_->head().seq < options_.slots) {
    const auto slot = segment_->ReadSlot(tail.seq);
    if (!slot.has_value()) {
      // Somebody else's commit under way would look the same as the chain's end: only a move is
      // safe then.
      if (segment_->RawSlotSeq(tail.seq) == tail.seq) return false;
      break;
    }
    if (slot->seq != tail.seq || slot->generation != segment_->generation() ||
        !segment_->Fits(*slot, tail.offset)) {
      break;
    }
    ++tail.seq;
    tail.offset = segment_->EndOf(*slot);
  }
  segment_->RewriteTail(tail);
  ++counters_.tails_repaired;
  return true;
}

ConsumerCore::Advice ConsumerCore::CheckHole(base::MonotonicTime now) {
  Advice advice = Advice::kNothing;
  for (std::uint32_t turn = 0; turn < options_.slots; ++turn) {
    const std::uint64_t seq = segment_->cursor_seq();
    const auto tail = segment_->ReadTail();
    if (!tail.has_value()) {
      // While the lock is held, CheckLock decides. With a free lock nobody is going to repair it.
      const bool held = segment_->ReadLock() != 0;
      if (held) tail_suspicion_.Clear();
      const bool stays = !held && tail_suspicion_.Age(seq, now) >= options_.timeouts.Lock();
      return stays ? Advice::kMove : advice;
    }
    tail_suspicion_.Clear();
    if (tail->seq <= seq) {
      // Nothing is published, so a reservation here belongs to an owner that has not got that far.
      hole_suspicion_.Clear();
      return advice;
    }
    const auto slot = segment_->ReadSlot(seq);
    if (!slot.has_value() || slot->seq != seq) {
      const bool stays =
          hole_suspicion_.Age(seq, now) >= options_.timeouts.Fill(options_.capacity_bytes / 2);
      return stays ? Advice::kMove : advice;
    }
    if (slot->state != SlotState::kReserved) {
      hole_suspicion_.Clear();
      return advice;
    }
    const Advice one = CheckReserved(*slot, now);
    if (one == Advice::kMove) return one;
    if (one == Advice::kNothing) return advice;
    advice = Advice::kChanged;
  }
  return advice;
}

// A published reservation at the cursor.
ConsumerCore::Advice ConsumerCore::CheckReserved(const Slot& slot, base::MonotonicTime now) {
  // First of all: the length below sets the time-out, and the skip.
  if (!segment_->Fits(slot, segment_->cursor_offset())) {
    ++counters_.bad_structure;
    unusable_ = true;
    return Advice::kMove;
  }
  const base::Duration age = hole_suspicion_.Age(slot.seq, now);
  const auto owner = owners_.find(slot.owner);
  const bool suspected = age >= options_.timeouts.Fill(slot.length_bytes);
  if (owner == owners_.end() || !Fence(owner->second, suspected)) {
    if (!suspected) return Advice::kNothing;
    spdlog::warn("ring {}: live owner {} does not finish {} bytes", options_.label, slot.owner,
                 slot.length_bytes);
    return Advice::kMove;
  }
  // Looked at again behind the fence: it may have committed just before it died.
  const auto again = segment_->ReadSlot(slot.seq);
  if (again != slot) return Advice::kNothing;
  segment_->Advance(slot);
  segment_->Release(slot.seq);
  ++counters_.holes_skipped;
  hole_suspicion_.Clear();
  return Advice::kChanged;
}

// Fences everybody at once: from here on, whatever is written into the old segment lands in retired
// memory.
bool ConsumerCore::Move() {
  std::uint64_t generation = 0;
  {
    const std::lock_guard lock(mutex_);
    generation = segment_->generation();
  }
  const Layout layout{.capacity_bytes = options_.capacity_bytes, .slots = options_.slots};
  // Outside the mutex: the pages of a large ring take a while.
  auto fresh = Segment::Create(fabric_, layout, options_.label, doorbell_, generation + 1);
  const std::lock_guard lock(mutex_);
  if (!fresh.ok()) {
    ++counters_.moves_failed;
    spdlog::error("ring {}: no fresh segment: {}", options_.label, fresh.status().ToString());
    return false;
  }
  const std::shared_ptr<Segment> old = std::exchange(segment_, *std::move(fresh));
  // The generation goes first. A producer that still saw the old one after its commit will say OK,
  // and that commit is then before this store, so the last look sees it.
  old->Retire();
  LastLook(*old);
  for (auto& drained : drained_) {
    if (drained.segment == nullptr) drained.segment = old;
  }
  owners_.clear();  // While `old` lives.
  known_tail_seq_ = 0;
  unusable_ = false;
  lock_suspicion_.Clear();
  hole_suspicion_.Clear();
  tail_suspicion_.Clear();
  ++counters_.moves;
  spdlog::warn("ring {}: moved to generation {}, {} messages taken along", options_.label,
               generation + 1, drained_.size());
  doorbell_->Ring();
  return true;
}

// Takes what is committed; senders of the rest see the new generation before they can say OK. Slots
// speak for themselves here: a hole may hide where the next one starts, so bytes must only lie in
// order and in bounds.
void ConsumerCore::LastLook(Segment& old) {
  std::uint64_t at_least = old.cursor_offset();
  const std::uint64_t end = old.head().seq + options_.slots;
  for (std::uint64_t seq = old.cursor_seq(); seq < end; ++seq) {
    const auto slot = old.ReadSlot(seq);
    if (old.RawSlotSeq(seq) != seq) continue;
    if (!slot.has_value() || slot->state == SlotState::kReserved) {
      ++counters_.abandoned;
      continue;
    }
    if (slot->state == SlotState::kPad) continue;
    const auto owner = owners_.find(slot->owner);
    if (slot->generation != old.generation()) {
      ++counters_.bad_generation;
    } else if (owner == owners_.end()) {
      ++counters_.bad_owner;
    } else if (slot->offset < at_least || !old.Fits(*slot, slot->offset)) {
      ++counters_.bad_structure;
    } else {
      at_least = old.EndOf(*slot);
      drained_.push_back({.segment = nullptr, .slot = *slot, .identity = owner->second.identity});
    }
  }
}

RecoveryRunner::RecoveryRunner(Consumer& consumer, base::Clock& clock, base::Duration interval)
    : thread_([&consumer, &clock, interval](std::stop_token stop) {
        std::mutex mutex;
        std::condition_variable_any never_notified;
        while (!stop.stop_requested()) {
          consumer.Tick(clock.Now());
          std::unique_lock lock(mutex);
          clock.WaitUntil(never_notified, lock, stop, clock.Now() + interval, [] { return false; });
        }
      }) {}

}  // namespace onepiece::ring
