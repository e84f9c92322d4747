// ConsumerCore: takes messages out of the ring.
#include <algorithm>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/spin.h"
#include "cluster/base/status.h"
#include "cluster/ring/consumer_core.h"

namespace onepiece::ring {
namespace {

// A sleeper looks again after this long even if nobody rings, because a producer may die between
// its commit and the doorbell.
constexpr base::Duration kLongestSleep = std::chrono::milliseconds(100);
// How often a spinning consumer looks at the ring between two looks at the clock. A look at the
// clock costs as much as one at the ring.
constexpr int kLooksPerClock = 16;

}  // namespace

ConsumerCore::ConsumerCore(fabric::Fabric& fabric, ConsumerOptions options, base::Clock& clock,
                           std::shared_ptr<fabric::Doorbell> doorbell)
    : fabric_(fabric),
      options_(std::move(options)),
      clock_(clock),
      doorbell_(std::move(doorbell)),
      dedup_(options_.dedup_window, options_.dedup_producers) {}

absl::Status ConsumerCore::Open() {
  if (!shared()) return absl::OkStatus();
  ONEPIECE_ASSIGN_OR_RETURN(auto active, NewSegment());
  const base::MutexLock lock(mutex_);
  active_.push_back(std::move(active));
  return absl::OkStatus();
}

std::optional<Delivery> ConsumerCore::Poll() { return Look(/*show_heads=*/true); }

std::optional<Delivery> ConsumerCore::Look(bool show_heads) {
  // Only a release, an enrollment or recovery can hold the mutex now, and none of them waits for
  // anybody while it does. So this poll gives up instead of waiting.
  if (!mutex_.TryLock()) return std::nullopt;
  const base::MutexLock lock(mutex_, std::adopt_lock);
  auto delivery = PollLocked();
  if (!delivery.has_value() && show_heads) ShowHeads();
  return delivery;
}

std::optional<Delivery> ConsumerCore::PollLocked() {
  if (!drained_.empty()) return NextDrained();
  // Every turn takes one slot out of the ring. The limit is for a peer all of whose messages are
  // dropped: without it, this loop might never end.
  std::uint32_t turns = options_.slots;
  for (std::size_t visited = 0; visited < active_.size() && turns > 0; ++visited) {
    ActiveSegment& active = *active_[next_active_ % active_.size()];
    next_active_ = (next_active_ + 1) % active_.size();
    if (auto delivery = TakeFrom(active, turns)) return delivery;
  }
  return std::nullopt;
}

std::optional<Delivery> ConsumerCore::TakeFrom(ActiveSegment& active, std::uint32_t& turns) {
  Segment& segment = *active.segment;
  for (; turns > 0 && !active.unusable; --turns) {
    const auto slot = segment.Next();
    if (!slot.has_value()) {
      // Other producers may keep the consumer busy while this segment's producer waits for room.
      if (!shared()) segment.ShowHead();
      return std::nullopt;
    }
    if (slot->state == SlotState::kReserved || !segment.Fits(*slot, segment.cursor_offset())) {
      ++counters_.bad_structure;
      active.unusable = true;
      return std::nullopt;
    }
    const auto owner = owners_.find(slot->owner);
    const bool known = owner != owners_.end() && owner->second->home.get() == &active;
    std::uint64_t* dropped = nullptr;
    if (slot->generation != segment.generation()) {
      dropped = &counters_.bad_generation;
    } else if (!known) {
      dropped = &counters_.bad_owner;
    } else if (slot->state == SlotState::kPad) {
      dropped = &counters_.pads;
    } else {
      switch (dedup_.Offer(owner->second->identity.producer_id, slot->message_id)) {
        case DedupWindow::Verdict::kNew:
          break;
        case DedupWindow::Verdict::kPending:
          return std::nullopt;
        case DedupWindow::Verdict::kSeen:
          ++owner->second->record->health.duplicates;
          dropped = &counters_.duplicates;
          break;
      }
    }
    // In a segment of its own, only its producer can have written that.
    if (dropped == &counters_.bad_generation || dropped == &counters_.bad_owner) {
      active.unusable = !shared();
    }
    segment.Advance(*slot);
    if (dropped == nullptr) {
      if (slot->seq >= owner->second->left) owner->second->left.reset();  // It is here after all.
      return MakeDelivery(active.segment, *slot, owner->second->identity, *owner->second->record);
    }
    ++*dropped;
    segment.Release(slot->seq);
  }
  return std::nullopt;
}

std::optional<Delivery> ConsumerCore::NextDrained() {
  while (!drained_.empty()) {
    const auto& front = drained_.front();
    switch (dedup_.Offer(front.identity.producer_id, front.slot.message_id)) {
      case DedupWindow::Verdict::kPending:
        return std::nullopt;
      case DedupWindow::Verdict::kSeen:
        ++counters_.duplicates;
        // This may be the last message that holds its memory, and freeing memory can take longer
        // than a Poll may.
        dropped_.push_back(std::move(drained_.front().segment));
        drained_.pop_front();
        continue;
      case DedupWindow::Verdict::kNew:
        break;
    }
    Drained next = std::move(drained_.front());
    drained_.pop_front();
    return MakeDelivery(std::move(next.segment), next.slot, next.identity, *next.record);
  }
  return std::nullopt;
}

Delivery ConsumerCore::MakeDelivery(std::shared_ptr<Segment> segment, const Slot& slot,
                                    const ProducerIdentity& identity, Record& record) {
  ++record.health.delivered;
  record.health.delivered_bytes += slot.length_bytes;
  ++counters_.delivered;
  counters_.delivered_bytes += slot.length_bytes;
  Delivery delivery;
  delivery.core_ = shared_from_this();
  delivery.segment_ = std::move(segment);
  delivery.seq_ = slot.seq;
  delivery.offset_ = slot.offset;
  delivery.size_bytes_ = slot.length_bytes;
  delivery.message_id_ = slot.message_id;
  delivery.producer_id_ = identity.producer_id;
  delivery.payload_crc32c_ = slot.payload_crc32c;
  delivery.payload_checked_ = slot.payload_checked;
  return delivery;
}

void ConsumerCore::Settle(const Delivery& delivery, bool bad_payload, bool read) {
  const base::MutexLock lock(mutex_);
  if (bad_payload) {
    ++counters_.bad_payload;
    const auto record = records_.find(delivery.producer_id_);
    if (record != records_.end()) ++record->second->health.corrupted;
  }
  if (!read) ++counters_.released_unread;
  dedup_.Settle(delivery.producer_id_, delivery.message_id_, !bad_payload);
  // A retired segment has no producers that could use the room.
  if (!delivery.segment_->retired()) delivery.segment_->Release(delivery.seq_);
}

// Does not yield the processor: another thread that gets it may keep it for milliseconds.
std::optional<Delivery> ConsumerCore::Spin(base::MonotonicTime deadline) {
  std::optional<base::MonotonicTime> end;
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (auto delivery = Look(/*show_heads=*/look + 1 == kLooksPerClock)) return delivery;
      base::RelaxProcessor();
    }
    if (!end.has_value()) end = std::min(clock_.Now() + options_.spin, deadline);
  } while (clock_.Now() < *end && !interrupted_.load());
  return std::nullopt;
}

void ConsumerCore::ShowHeads() {
  for (const auto& active : active_) active->segment->ShowHead();
}

std::optional<Delivery> ConsumerCore::Wait(base::MonotonicTime deadline) {
  while (!interrupted_.load()) {
    if (auto delivery = Spin(deadline)) return delivery;
    const base::MonotonicTime now = clock_.Now();
    if (now >= deadline) return std::nullopt;

    std::uint32_t seen = 0;
    bool ready = false;
    {
      const base::MutexLock lock(mutex_);
      seen = doorbell_->count();
      SetSleeping(true);
      // This look comes after the flag is visible. It sees the message of a producer that committed
      // before; a producer that commits later sees the flag when it confirms, and rings.
      ready = ReadyLocked();
      if (!ready) {
        ++counters_.sleeps;
        asleep_ = true;
        // Recovery may be resting, and the producer seen in the middle of its send may be dead.
        if (resting_calmly_ && !care_wanted_ && SomebodyMidway()) {
          care_wanted_ = true;
          care_changed_.NotifyAll();
        }
      }
    }
    if (!ready && !interrupted_.load()) {
      doorbell_->Wait(seen, std::min(deadline - now, kLongestSleep));
    }
    const base::MutexLock lock(mutex_);
    asleep_ = false;
    SetSleeping(false);
  }
  return std::nullopt;
}

bool ConsumerCore::ReadyLocked() {
  if (!drained_.empty()) return true;
  return std::ranges::any_of(active_, [](const auto& active) {
    return !active->unusable && active->segment->Next().has_value();
  });
}

void ConsumerCore::SetSleeping(bool sleeping) {
  for (const auto& active : active_) active->segment->SetSleeping(sleeping);
}

void ConsumerCore::Interrupt() {
  interrupted_.store(true);
  doorbell_->Ring();
}

// Retire takes along what was committed. A producer that commits later sees that the generation is
// over before it can take its message for delivered.
void ConsumerCore::Shut() {
  Trash trash;
  const base::MutexLock lock(mutex_);
  shut_ = true;
  while (!active_.empty()) Retire(active_.back(), trash);
  doorbell_->Ring();
}

void ConsumerCore::Close() {
  interrupted_.store(true);
  Shut();
  const base::MutexLock lock(mutex_);
  drained_.clear();
  dropped_.clear();
  doorbell_->Ring();
}

ConsumerCounters ConsumerCore::counters() const {
  const base::MutexLock lock(mutex_);
  return counters_;
}

Generation ConsumerCore::generation() const {
  const base::MutexLock lock(mutex_);
  return shared() && !active_.empty() ? active_.front()->segment->generation() : last_generation_;
}

Consumer::Fill ConsumerCore::fill() const {
  std::vector<std::shared_ptr<ActiveSegment>> segments;
  {
    const base::MutexLock lock(mutex_);
    segments = active_;
  }
  Consumer::Fill sum;
  for (const auto& active : segments) {
    // Locks for one segment at a time, so that nobody waits for all of them.
    const base::MutexLock lock(mutex_);
    const Segment::Fill fill = active->segment->fill();
    sum.bytes += fill.bytes;
    sum.messages += fill.messages;
    sum.capacity_bytes += options_.capacity_bytes;
    sum.slots += options_.slots;
  }
  return sum;
}

std::function<bool()> ConsumerCore::MarkEnd() {
  struct End {
    std::weak_ptr<Segment> segment;
    std::optional<std::uint64_t> seq;  // nullopt: the tail could not be read yet.
  };
  std::vector<End> ends;
  const base::MutexLock lock(mutex_);
  for (const auto& active : active_) ends.push_back({active->segment, active->segment->End()});
  for (const auto& segment : retired_) ends.push_back({segment, std::nullopt});
  return [self = shared_from_this(), ends = std::move(ends)]() mutable {
    Trash segments;  // Perhaps the last owners, so they let go without the mutex.
    const base::MutexLock locked(self->mutex_);
    std::erase_if(ends, [&](End& end) {
      const std::shared_ptr<Segment> segment = end.segment.lock();
      // A retired segment lives while a message of it waits, or is in the hands of a delivery.
      if (segment == nullptr) return true;
      segments.push_back(segment);
      if (segment->retired()) return false;
      if (!end.seq.has_value()) end.seq = segment->End();
      return end.seq.has_value() && segment->head().seq >= *end.seq;
    });
    return ends.empty();
  };
}

}  // namespace onepiece::ring
