#include "cluster/ring/producer.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "cluster/base/crc32c.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"

namespace onepiece::ring {
namespace {

using fabric::Op;

// A line that fails its check is being written; how often it is read again before the send gives
// up.
constexpr int kMaxRereads = 64;
// How long a send that is committed waits for a readable head.
constexpr base::Duration kConfirmPatience = std::chrono::milliseconds(100);
// Shorter waits than this cost more as a sleep than as a yield.
constexpr base::Duration kShortestSleep = std::chrono::microseconds(50);

std::span<const std::uint64_t, kTailWords> TailPart(const LineWords& lines) {
  return std::span(lines).first<kTailWords>();
}

std::span<const std::uint64_t, kHeadWords> HeadPart(const LineWords& lines) {
  return std::span(lines).subspan<kSlotWords, kHeadWords>();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Producer>> Producer::Connect(fabric::Dialer& dialer,
                                                            const ProducerGrant& grant,
                                                            ProducerOptions options,
                                                            base::Clock& clock) {
  const Layout layout{.capacity_bytes = grant.capacity_bytes, .slots = grant.slots};
  if (!layout.Valid() || layout.RegionBytes() != grant.region.length_bytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_GRANT",
                           "the grant's geometry does not fit its region");
  }
  ONEPIECE_ASSIGN_OR_RETURN(auto channel, dialer.Connect(grant.region));
  return std::unique_ptr<Producer>(new Producer(std::move(channel), grant, options, clock));
}

Producer::Producer(std::unique_ptr<fabric::Channel> channel, const ProducerGrant& grant,
                   ProducerOptions options, base::Clock& clock)
    : channel_(std::move(channel)),
      grant_(grant),
      layout_{.capacity_bytes = grant.capacity_bytes, .slots = grant.slots},
      options_(options),
      clock_(clock),
      random_(base::RandomU64()),
      nonce_(base::RandomU64()) {}

absl::StatusOr<SendResult> Producer::Send(std::uint64_t message_id, std::span<const Piece> pieces,
                                          base::MonotonicTime deadline) {
  std::uint64_t length = 0;
  std::uint32_t crc = 0;
  spans_.clear();
  for (const Piece& piece : pieces) {
    if (piece.bytes.empty()) continue;
    crc = length == 0 ? piece.crc32c : base::CombineCrc32c(crc, piece.crc32c, piece.bytes.size());
    length += piece.bytes.size();
    spans_.push_back(piece.bytes);
  }
  if (length == 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "EMPTY_MESSAGE",
                           "a message has at least one byte");
  }
  if (length > layout_.max_message_bytes()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "MESSAGE_TOO_LARGE",
                           "a message of " + std::to_string(length) + " bytes; this ring takes " +
                               std::to_string(layout_.max_message_bytes()));
  }
  Plan plan;
  plan.message = {.length_bytes = length,
                  .message_id = message_id,
                  .generation = grant_.generation,
                  .owner = grant_.owner,
                  .payload_crc32c = crc};
  for (int attempt = 0;; ++attempt) {
    SendResult result;
    switch (Acquire(plan, result)) {
      case Step::kReady:
        return Publish(plan);
      case Step::kDone:
        return result;
      case Step::kRetry:
        break;
    }
    ++counters_.lock_retries;
    if (clock_.Now() >= deadline) return Busy(counters_.busy_lock, "RING_LOCKED", false);
    BackOff(attempt, deadline);
  }
}

// Round trip 1: take the lock and see tail and head as they were afterwards.
Producer::Step Producer::Acquire(Plan& plan, SendResult& result) {
  do {
    ++nonce_;
  } while ((nonce_ & kNonceMask) == 0);
  lock_word_ = LockWord(grant_.owner, nonce_);
  std::uint64_t holder = 0;
  LineWords lines{};
  const Op chain[] = {Op::CompareAndSwap("lock.take", kLockOffset, 0, lock_word_, &holder),
                      Op::ReadWords("lines.read", kTailOffset, lines)};
  if (absl::Status status = channel_->Execute(chain, ChainDeadline()); !status.ok()) {
    result = {.outcome = SendOutcome::kBusy, .reconnect = true, .detail = std::move(status)};
    return Step::kDone;
  }
  if (holder == 0) return Inspect(lines, plan, result);
  // The lock of a ring that has moved may stay taken for ever.
  const auto head = DecodeHead(HeadPart(lines));
  if (!head.has_value() ||
      (head->generation == grant_.generation && (head->flags & kFlagRetired) == 0)) {
    return Step::kRetry;
  }
  result = Busy(counters_.busy_unreadable, "RING_MOVED", true);
  return Step::kDone;
}

// The lock is ours: decides whether and where the message goes, or gives the lock back.
Producer::Step Producer::Inspect(const LineWords& lines, Plan& plan, SendResult& result) {
  LineWords again = lines;
  Head head;
  if (!ReadLines(again, plan.tail, head)) {
    Unlock();
    result = Busy(counters_.busy_unreadable, "RING_UNREADABLE", channel_->broken());
    return Step::kDone;
  }
  if (head.generation != grant_.generation || (head.flags & kFlagRetired) != 0 ||
      head.capacity_bytes != layout_.capacity_bytes || head.slots != layout_.slots) {
    Unlock();
    result = Busy(counters_.busy_unreadable, "RING_MOVED", true);
    return Step::kDone;
  }
  const std::uint64_t footprint = Layout::Footprint(plan.message.length_bytes);
  const std::uint64_t position = plan.tail.offset % layout_.capacity_bytes;
  plan.pad_bytes =
      position + footprint > layout_.capacity_bytes ? layout_.capacity_bytes - position : 0;
  const std::uint64_t slots_needed = plan.pad_bytes > 0 ? 2 : 1;
  // Unsigned differences: a tail behind its head, which no honest peer makes, counts as full too.
  const std::uint64_t used_bytes = plan.tail.offset - head.offset;
  const std::uint64_t used_slots = plan.tail.seq - head.seq;
  if (plan.tail.offset % kLineBytes != 0 || used_bytes > layout_.capacity_bytes ||
      used_slots > layout_.slots ||
      plan.pad_bytes + footprint > layout_.capacity_bytes - used_bytes ||
      slots_needed > layout_.slots - used_slots) {
    Unlock();
    result = Busy(counters_.busy_full, "RING_FULL", channel_->broken());
    return Step::kDone;
  }
  plan.sleeping = (head.flags & kFlagSleeping) != 0;
  return Step::kReady;
}

// Decodes tail and head, reading them again while either fails its check.
bool Producer::ReadLines(LineWords& lines, Tail& tail, Head& head) {
  for (int reread = 0; reread <= kMaxRereads; ++reread) {
    const auto seen_tail = DecodeTail(TailPart(lines));
    const auto seen_head = DecodeHead(HeadPart(lines));
    if (seen_tail.has_value() && seen_head.has_value()) {
      tail = *seen_tail;
      head = *seen_head;
      return true;
    }
    const Op read = Op::ReadWords("lines.reread", kTailOffset, lines);
    if (!channel_->Execute({&read, 1}, ChainDeadline()).ok()) return false;
  }
  return false;
}

void Producer::Unlock() {
  std::uint64_t holder = 0;
  const Op op = Op::CompareAndSwap("lock.giveback", kLockOffset, lock_word_, 0, &holder);
  // On an error the channel is broken, the caller says `reconnect`, and the consumer breaks the
  // lock.
  (void)channel_->Execute({&op, 1}, ChainDeadline());
}

// Round trip 2. The reservation is visible before the tail passes it and the tail before the lock
// is free, so that recovery can always tell what an interrupted send has done; the payload travels
// without the lock.
SendResult Producer::Publish(const Plan& plan) {
  const Tail& tail = plan.tail;
  Slot pad{.seq = tail.seq,
           .offset = tail.offset,
           .length_bytes = plan.pad_bytes,
           .generation = grant_.generation,
           .owner = grant_.owner,
           .state = SlotState::kPad};
  Slot message = plan.message;
  message.seq = tail.seq + (plan.pad_bytes > 0 ? 1 : 0);
  message.offset = tail.offset + plan.pad_bytes;
  const SlotWords pad_words = EncodeSlot(pad);
  const SlotWords reserved = EncodeSlot(message);
  message.state = SlotState::kCommitted;
  const SlotWords committed = EncodeSlot(message);
  const TailWords new_tail = EncodeTail(
      {.seq = message.seq + 1, .offset = message.offset + Layout::Footprint(message.length_bytes)});
  const std::uint64_t slot_at = layout_.SlotOffset(message.seq);
  std::uint64_t holder = 0;
  HeadWords head{};

  std::array<Op, 8> chain;
  std::size_t count = 0;
  if (plan.pad_bytes > 0) {
    chain[count++] = Op::WriteWords("slot.pad", layout_.SlotOffset(pad.seq), pad_words);
  }
  chain[count++] = Op::WriteWords("slot.reserve", slot_at, reserved);
  chain[count++] = Op::WriteWords("tail.write", kTailOffset, new_tail);
  chain[count++] = Op::CompareAndSwap("lock.free", kLockOffset, lock_word_, 0, &holder);
  chain[count++] = Op::Write("payload.write", layout_.PayloadOffset(message.offset), spans_);
  chain[count++] = Op::WriteWords("slot.commit", slot_at, committed);
  if (plan.sleeping) chain[count++] = Op::Notify("doorbell.ring");
  chain[count++] = Op::ReadWords("head.confirm", kHeadOffset, head);
  if (absl::Status status = channel_->Execute(std::span(chain).first(count), ChainDeadline());
      !status.ok()) {
    return Unknown(std::move(status));
  }
  if (holder != lock_word_) {
    return Unknown(base::MakeError(absl::StatusCode::kAborted, "RING_FENCED",
                                   "the consumer had broken this producer's lock"));
  }
  SendResult result = Confirm(head, plan.sleeping);
  if (result.outcome == SendOutcome::kOk) {
    ++counters_.sent;
    counters_.sent_bytes += message.length_bytes;
  }
  return result;
}

// The message is committed. It is acknowledged only if the ring had not begun to move before that,
// and a consumer that fell asleep since round trip 1 is woken: it publishes `sleeping` before it
// looks at the slot a last time, we commit before we look at `sleeping` a last time, so one of the
// two sees the other.
SendResult Producer::Confirm(const HeadWords& words, bool notified) {
  HeadWords lines = words;
  std::optional<Head> head = DecodeHead(lines);
  // A consumer that lost its processor in the middle of the line leaves it torn for a while. To
  // wait for it costs less than to make the outcome unknown.
  const base::MonotonicTime patience = clock_.Now() + kConfirmPatience;
  for (int reread = 0; !head.has_value() && (reread < kMaxRereads || clock_.Now() < patience);
       ++reread) {
    if (reread >= kMaxRereads) BackOff(reread - kMaxRereads, patience);
    const Op read = Op::ReadWords("head.reread", kHeadOffset, lines);
    if (absl::Status status = channel_->Execute({&read, 1}, ChainDeadline()); !status.ok()) {
      return Unknown(std::move(status));
    }
    head = DecodeHead(lines);
  }
  if (!head.has_value()) {
    return Unknown(base::MakeError(absl::StatusCode::kAborted, "RING_UNREADABLE",
                                   "the head stays unreadable after the message was written"));
  }
  if (head->generation != grant_.generation || (head->flags & kFlagRetired) != 0) {
    return Unknown(base::MakeError(absl::StatusCode::kAborted, "RING_MOVED",
                                   "the ring moved while the message was written"));
  }
  if (notified) ++counters_.notifies;
  if (!notified && (head->flags & kFlagSleeping) != 0) {
    const Op ring = Op::Notify("doorbell.late");
    (void)channel_->Execute({&ring, 1}, ChainDeadline());
    ++counters_.notifies;
  }
  return {.outcome = SendOutcome::kOk, .reconnect = channel_->broken(), .detail = {}};
}

// Exponential, with jitter over the upper half: two that collided once shall not collide again.
void Producer::BackOff(int attempt, base::MonotonicTime deadline) {
  const auto longest = options_.backoff_max.count();
  const auto limit = std::min(longest, options_.backoff_min.count() << std::min(attempt, 20));
  const base::Duration wait(
      limit / 2 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit / 2 + 1)));
  if (wait >= kShortestSleep) {
    std::this_thread::sleep_for(std::min(wait, deadline - clock_.Now()));
    return;
  }
  const base::MonotonicTime until = clock_.Now() + wait;
  do {
    std::this_thread::yield();
  } while (clock_.Now() < until && clock_.Now() < deadline);
}

SendResult Producer::Busy(std::uint64_t& counter, const char* reason, bool reconnect) {
  ++counter;
  return {.outcome = SendOutcome::kBusy,
          .reconnect = reconnect,
          .detail = base::MakeError(absl::StatusCode::kResourceExhausted, reason,
                                    "the ring took nothing")};
}

SendResult Producer::Unknown(absl::Status detail) {
  ++counters_.unknown;
  return {.outcome = SendOutcome::kUnknown, .reconnect = true, .detail = std::move(detail)};
}

base::MonotonicTime Producer::ChainDeadline() const {
  return clock_.Now() + options_.chain_timeout;
}

}  // namespace onepiece::ring
