#include "cluster/ring/segment.h"

#include <utility>

#include "cluster/base/status.h"

namespace onepiece::ring {
namespace {

// Loopback chains are local on every backend. A longer wait means that the backend is gone.
constexpr base::Duration kLoopbackTimeout = std::chrono::seconds(5);
// The share of the ring (one part in this many) that may be released before the head is published.
constexpr std::uint64_t kHeadShare = 8;
// Words of the head line.
constexpr std::size_t kHeadSeqWord = 0;
constexpr std::size_t kHeadOffsetWord = 1;

}  // namespace

absl::StatusOr<std::shared_ptr<Segment>> Segment::Create(fabric::Fabric& fabric,
                                                         const Layout& layout,
                                                         std::string_view label,
                                                         std::shared_ptr<fabric::Doorbell> doorbell,
                                                         Shape shape, Generation generation) {
  ONEPIECE_ASSIGN_OR_RETURN(auto region,
                            fabric.Register(layout.RegionBytes(), label, std::move(doorbell)));
  ONEPIECE_ASSIGN_OR_RETURN(auto loopback, fabric::ConnectLoopback(fabric, *region));
  return std::shared_ptr<Segment>(new Segment(std::move(region), std::move(loopback),
                                              fabric.clock(), layout, shape, generation));
}

Segment::Segment(std::unique_ptr<fabric::Region> region, fabric::Loopback loopback,
                 base::Clock& fabric_clock, const Layout& layout, Shape shape,
                 Generation generation)
    : region_(std::move(region)),
      loopback_(std::move(loopback)),
      fabric_clock_(fabric_clock),
      layout_(layout),
      shape_(shape),
      generation_(generation),
      memory_(region_->bytes().data()),
      head_{
          .generation = generation, .capacity_bytes = layout.capacity_bytes, .slots = layout.slots},
      released_(layout.slots, false),
      end_offset_(layout.slots, 0) {
  RewriteTail({});
  PublishHead(Order::kBeforeLooking);
}

std::optional<Slot> Segment::Next() {
  // Deliveries hold every slot, so no correct producer has written one at the cursor.
  if (cursor_seq_ - head_.seq >= layout_.slots) return std::nullopt;
  // The tail is read before the slot. In the other order the slot may be an unpublished one of a
  // dead owner, which the next owner overwrites and publishes between the two reads. Besides, the
  // line of a slot that nobody reads stays with its producer's processor until the commit.
  if (shape_ == Shape::kShared && !Published(cursor_seq_)) return std::nullopt;
  if (RawSlotSeq(cursor_seq_) != cursor_seq_) return std::nullopt;
  auto slot = ReadSlot(cursor_seq_);
  if (!slot.has_value() || slot->seq != cursor_seq_) return std::nullopt;
  // In a segment of its own no correct producer reserves; there the caller judges such a slot.
  if (shape_ == Shape::kShared && slot->state == SlotState::kReserved) return std::nullopt;
  return slot;
}

bool Segment::Published(std::uint64_t seq) {
  if (seq < known_tail_seq_) return true;
  if (fabric::LoadWord(memory_ + kTailOffset) <= seq) return false;  // Cheaper than the check.
  const auto tail = ReadTail();
  if (tail.has_value()) known_tail_seq_ = tail->seq;
  return seq < known_tail_seq_;
}

Segment::Fill Segment::fill() const {
  if (shape_ == Shape::kShared) {
    const auto tail = ReadTail();
    if (!tail.has_value()) return {};
    return {.bytes = tail->offset - head_.offset, .messages = tail->seq - head_.seq};
  }
  // Only the producer knows its tail, so the chain of slots is followed to its end.
  std::uint64_t seq = cursor_seq_;
  std::uint64_t end = cursor_offset_;
  for (; seq - head_.seq < layout_.slots && RawSlotSeq(seq) == seq; ++seq) {
    const auto slot = ReadSlot(seq);
    if (!slot.has_value() || !Fits(*slot, end)) break;
    end = EndOf(*slot);
  }
  return {.bytes = end - head_.offset, .messages = seq - head_.seq};
}

std::optional<std::uint64_t> Segment::End() const {
  if (shape_ != Shape::kShared) return head_.seq + fill().messages;
  const auto tail = ReadTail();
  return tail.has_value() ? std::optional(tail->seq) : std::nullopt;
}

std::optional<Slot> Segment::ReadSlot(std::uint64_t seq) const {
  SlotWords words;
  fabric::LoadWords(memory_ + layout_.SlotOffset(seq), words);
  return DecodeSlot(words);
}

std::uint64_t Segment::RawSlotSeq(std::uint64_t seq) const {
  return fabric::LoadWord(memory_ + layout_.SlotOffset(seq));
}

std::optional<Tail> Segment::ReadTail() const {
  TailWords words;
  fabric::LoadWords(memory_ + kTailOffset, words);
  auto tail = DecodeTail(words);
  if (tail.has_value() && (tail->seq - head_.seq > layout_.slots || tail->seq < cursor_seq_ ||
                           tail->offset - head_.offset > layout_.capacity_bytes)) {
    tail.reset();
  }
  return tail;
}

void Segment::RewriteTail(const Tail& tail) {
  fabric::StoreWords(memory_ + kTailOffset, EncodeTail(tail));
}

std::uint64_t Segment::ReadLock() const { return fabric::LoadWord(memory_ + kLockOffset); }

bool Segment::BreakLock(std::uint64_t word) {
  std::uint64_t holder = 0;
  const fabric::Op op = fabric::Op::CompareAndSwap("lock.break", kLockOffset, word, 0, &holder);
  return loopback_.channel->Execute({&op, 1}, fabric_clock_.Now() + kLoopbackTimeout).ok() &&
         holder == word;
}

bool Segment::Fits(const Slot& slot, std::uint64_t offset) const {
  if (slot.offset != offset || offset % kLineBytes != 0 || slot.length_bytes == 0) return false;
  const std::uint64_t to_wrap = layout_.capacity_bytes - offset % layout_.capacity_bytes;
  const bool pad = slot.state == SlotState::kPad;
  const std::uint64_t limit = layout_.max_message_bytes();
  // A PAD covers the rest of the lap, and is shorter than the message that did not fit there.
  if (pad ? slot.length_bytes != to_wrap || to_wrap >= limit : slot.length_bytes > limit) {
    return false;
  }
  const std::uint64_t footprint = Layout::Footprint(slot.length_bytes);
  const std::uint64_t used = offset - head_.offset;
  return footprint <= to_wrap && used <= layout_.capacity_bytes &&
         footprint <= layout_.capacity_bytes - used;
}

void Segment::Advance(const Slot& slot) {
  cursor_offset_ = EndOf(slot);
  end_offset_[cursor_seq_ % layout_.slots] = cursor_offset_;
  released_[cursor_seq_ % layout_.slots] = false;
  ++cursor_seq_;
}

void Segment::Release(std::uint64_t seq) {
  released_[seq % layout_.slots] = true;
  while (head_.seq < cursor_seq_ && released_[head_.seq % layout_.slots]) {
    head_.offset = end_offset_[head_.seq % layout_.slots];
    ++head_.seq;
  }
  const std::uint64_t slots = head_.seq - published_[kHeadSeqWord];
  const std::uint64_t bytes = head_.offset - published_[kHeadOffsetWord];
  const bool asleep = (head_.flags & kFlagSleeping) != 0;
  if (asleep || slots > layout_.slots / kHeadShare || bytes > layout_.capacity_bytes / kHeadShare) {
    ShowHead();
  }
}

void Segment::ShowHead() {
  if (published_[kHeadSeqWord] != head_.seq) PublishHead(Order::kRelaxed);
}

void Segment::SetSleeping(bool sleeping) {
  if (sleeping == ((head_.flags & kFlagSleeping) != 0)) return;
  head_.flags = sleeping ? head_.flags | kFlagSleeping : head_.flags & ~kFlagSleeping;
  PublishHead(Order::kBeforeLooking);
}

void Segment::Retire() {
  head_.flags |= kFlagRetired;
  head_.generation = Generation(head_.generation.value + 1);
  PublishHead(Order::kBeforeLooking);
}

void Segment::PublishHead(Order order) {
  const HeadWords words = EncodeHead(head_);
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == published_[i]) continue;
    // The check is the last word, and it changes whenever another one does. Producers that only
    // need room may see it late; a flag or a generation must be seen before the next look at a
    // slot.
    const bool last = i + 1 == words.size();
    fabric::StoreWord(memory_ + kHeadOffset + 8 * i, words[i],
                      last && order == Order::kBeforeLooking ? std::memory_order_seq_cst
                                                             : std::memory_order_release);
  }
  published_ = words;
}

std::span<const std::byte> Segment::payload(std::uint64_t offset, std::uint64_t length) const {
  return {memory_ + layout_.PayloadOffset(offset), static_cast<std::size_t>(length)};
}

}  // namespace onepiece::ring
