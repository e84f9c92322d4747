// ConsumerCore: taking messages out of the ring.
#include <algorithm>
#include <thread>
#include <utility>

#include "cluster/ring/consumer_core.h"

namespace onepiece::ring {
namespace {

// A sleeper looks again after this long even if nobody rings: a producer may die between commit and
// doorbell.
constexpr base::Duration kLongestSleep = std::chrono::milliseconds(100);

}  // namespace

ConsumerCore::ConsumerCore(fabric::Fabric& fabric, ConsumerOptions options, base::Clock& clock,
                           std::shared_ptr<fabric::Doorbell> doorbell,
                           std::shared_ptr<Segment> segment)
    : fabric_(fabric),
      options_(std::move(options)),
      clock_(clock),
      doorbell_(std::move(doorbell)),
      segment_(std::move(segment)),
      dedup_(options_.dedup_window, options_.dedup_producers) {}

std::optional<Delivery> ConsumerCore::Poll() {
  // Held elsewhere only by a release, an admission or recovery, never while they wait for anybody.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  return PollLocked();
}

std::optional<Delivery> ConsumerCore::PollLocked() {
  if (!drained_.empty()) return NextDrained();
  Segment& segment = *segment_;
  // Every turn takes one slot out of the ring, so there are at most as many as slots.
  for (std::uint32_t turn = 0; turn < options_.slots && !unusable_; ++turn) {
    const std::uint64_t seq = segment.cursor_seq();
    const auto slot = segment.ReadSlot(seq);
    if (!slot.has_value() || slot->seq != seq || slot->state == SlotState::kReserved ||
        !Published(seq)) {
      return std::nullopt;
    }
    if (!segment.Fits(*slot, segment.cursor_offset())) {
      ++counters_.bad_structure;
      unusable_ = true;
      return std::nullopt;
    }
    const auto owner = owners_.find(slot->owner);
    std::uint64_t* dropped = nullptr;
    if (slot->generation != segment.generation()) {
      dropped = &counters_.bad_generation;
    } else if (owner == owners_.end()) {
      dropped = &counters_.bad_owner;
    } else if (slot->state == SlotState::kPad) {
      dropped = &counters_.pads;
    } else {
      switch (dedup_.Offer(owner->second.identity.producer_id, slot->message_id)) {
        case DedupWindow::Verdict::kNew:
          break;
        case DedupWindow::Verdict::kPending:
          return std::nullopt;
        case DedupWindow::Verdict::kSeen:
          dropped = &counters_.duplicates;
          break;
      }
    }
    segment.Advance(*slot);
    if (dropped == nullptr) return MakeDelivery(segment_, *slot, owner->second.identity);
    ++*dropped;
    segment.Release(seq);
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
        drained_.pop_front();
        continue;
      case DedupWindow::Verdict::kNew:
        break;
    }
    Drained next = std::move(drained_.front());
    drained_.pop_front();
    return MakeDelivery(std::move(next.segment), next.slot, next.identity);
  }
  return std::nullopt;
}

// A slot counts once the tail has passed it. Without this, a PAD of an owner that died before it
// wrote the tail would be consumed although the next owner is going to write the same slot anew.
bool ConsumerCore::Published(std::uint64_t seq) {
  if (seq < known_tail_seq_) return true;
  const auto tail = segment_->ReadTail();
  if (tail.has_value()) known_tail_seq_ = tail->seq;
  return seq < known_tail_seq_;
}

Delivery ConsumerCore::MakeDelivery(std::shared_ptr<Segment> segment, const Slot& slot,
                                    const ProducerIdentity& identity) {
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
  delivery.incarnation_ = identity.incarnation;
  delivery.payload_crc32c_ = slot.payload_crc32c;
  return delivery;
}

void ConsumerCore::Settle(const Delivery& delivery, bool bad_payload, bool read) {
  const std::lock_guard lock(mutex_);
  if (bad_payload) ++counters_.bad_payload;
  if (!read) ++counters_.released_unread;
  dedup_.Settle(delivery.producer_id_, delivery.message_id_, !bad_payload);
  // A retired segment has no producers that could use the space.
  if (delivery.segment_ == segment_) segment_->Release(delivery.seq_);
}

std::optional<Delivery> ConsumerCore::Wait(base::MonotonicTime deadline) {
  while (!interrupted_.load()) {
    const base::MonotonicTime spin_until = clock_.Now() + options_.spin;
    do {
      if (auto delivery = Poll()) return delivery;
      std::this_thread::yield();
    } while (clock_.Now() < std::min(spin_until, deadline) && !interrupted_.load());
    const base::MonotonicTime now = clock_.Now();
    if (now >= deadline) return std::nullopt;

    std::shared_ptr<Segment> segment;
    std::uint32_t seen = 0;
    bool ready = false;
    {
      const std::lock_guard lock(mutex_);
      segment = segment_;
      seen = doorbell_->count();
      segment->SetSleeping(true);
      // After the flag is visible: a producer that committed before it is seen here, one that
      // commits later sees the flag when it confirms, and rings.
      ready = ReadyLocked();
      if (!ready) ++counters_.sleeps;
    }
    if (!ready && !interrupted_.load()) {
      doorbell_->Wait(seen, std::min(deadline - now, kLongestSleep));
    }
    const std::lock_guard lock(mutex_);
    segment->SetSleeping(false);
  }
  return std::nullopt;
}

bool ConsumerCore::ReadyLocked() {
  if (!drained_.empty()) return true;
  if (unusable_) return false;
  const std::uint64_t seq = segment_->cursor_seq();
  const auto slot = segment_->ReadSlot(seq);
  return slot.has_value() && slot->seq == seq && slot->state != SlotState::kReserved &&
         Published(seq);
}

void ConsumerCore::Interrupt() {
  interrupted_.store(true);
  doorbell_->Ring();
}

void ConsumerCore::Close() {
  interrupted_.store(true);
  const std::lock_guard lock(mutex_);
  segment_->Retire();
  doorbell_->Ring();
  drained_.clear();
  owners_.clear();
  segment_.reset();
}

ConsumerCounters ConsumerCore::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::uint64_t ConsumerCore::generation() const {
  const std::lock_guard lock(mutex_);
  return segment_->generation();
}

Consumer::Fill ConsumerCore::fill() const {
  const std::lock_guard lock(mutex_);
  const Head& head = segment_->head();
  const auto tail = segment_->ReadTail();
  if (!tail.has_value()) return {};
  return {.bytes = tail->offset - head.offset, .messages = tail->seq - head.seq};
}

}  // namespace onepiece::ring
