// FDR-L: all producers write into one segment, and a message takes two round trips: the first takes
// the lock, the second does everything else.
#include <array>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/ring/sender.h"

namespace onepiece::ring {
namespace {

using fabric::Op;

// Tries for the lock before the sleeping consumer is woken. With the default backoff they take some
// hundred microseconds.
constexpr int kTriesBeforeWaking = 8;

std::span<const std::uint64_t, kTailWords> TailPart(const LineWords& lines) {
  return std::span(lines).first<kTailWords>();
}

std::span<const std::uint64_t, kHeadWords> HeadPart(const LineWords& lines) {
  return std::span(lines).subspan<kSlotWords, kHeadWords>();
}

class SharedSender final : public Sender {
 public:
  SharedSender(std::unique_ptr<fabric::Channel> channel, const ProducerGrant& grant,
               const ProducerOptions& options, base::Clock& clock)
      : Sender(std::move(channel), grant, options, clock), nonce_(base::RandomU64()) {}

  SendResult Send(Slot message, Op::Pieces pieces, base::MonotonicTime deadline) override;
  std::optional<Position> Look() override;

 private:
  /// Where a message goes, decided while the lock is held.
  struct Plan {
    Tail tail;                    ///< The tail before this message.
    std::uint64_t pad_bytes = 0;  ///< 0: no PAD slot is needed.
    Slot message;
    bool sleeping = false;
  };
  enum class Step : std::uint8_t { kReady, kRetry, kDone };

  void WakeAboutHolder();
  Step Acquire(Plan& plan, SendResult& result);
  Step Inspect(const LineWords& lines, Plan& plan, SendResult& result);
  bool ReadLines(LineWords& lines, Tail& tail, Head& head);
  void Unlock();
  SendResult Publish(const Plan& plan, Op::Pieces pieces);

  std::uint64_t nonce_;
  std::uint64_t lock_word_ = 0;  // The word that this send writes into the lock.
  // Who held the lock at the last try, for how many tries in a row, and whether the consumer slept.
  std::uint64_t holder_ = 0;
  int holder_tries_ = 0;
  bool consumer_sleeps_ = false;
};

SendResult SharedSender::Send(Slot message, Op::Pieces pieces, base::MonotonicTime deadline) {
  Plan plan{.message = message};
  for (int attempt = 0;; ++attempt) {
    SendResult result;
    switch (Acquire(plan, result)) {
      case Step::kReady:
        return Publish(plan, pieces);
      case Step::kDone:
        return result;
      case Step::kRetry:
        break;
    }
    ++counters_.lock_retries;
    WakeAboutHolder();
    if (clock_.Now() >= deadline) return Busy(counters_.busy_lock, "RING_LOCKED", false);
    BackOff(attempt, deadline);
  }
}

// A producer that holds the lock across several tries may have died. Recovery finds that out, but
// it rests while the consumer sleeps. So the consumer is woken, once for each holder.
void SharedSender::WakeAboutHolder() {
  if (holder_tries_ != kTriesBeforeWaking || !consumer_sleeps_) return;
  const Op ring = Op::Notify("doorbell.blocked");
  (void)Execute({&ring, 1});
  ++counters_.notifies;
}

// Round trip 1 takes the lock, and reads the tail and the head behind it.
SharedSender::Step SharedSender::Acquire(Plan& plan, SendResult& result) {
  do {
    ++nonce_;
  } while ((nonce_ & kNonceMask) == 0);
  lock_word_ = LockWord(grant_.owner, nonce_);
  std::uint64_t holder = 0;
  LineWords lines{};
  const Op chain[] = {Op::CompareAndSwap("lock.take", kLockOffset, 0, lock_word_, &holder),
                      Op::ReadWords("lines.read", kTailOffset, lines)};
  if (absl::Status status = Execute(chain); !status.ok()) {
    result = {.outcome = SendOutcome::kBusy, .reconnect = true, .detail = std::move(status)};
    return Step::kDone;
  }
  if (holder == 0) return Inspect(lines, plan, result);
  holder_tries_ = holder == holder_ ? holder_tries_ + 1 : 1;
  holder_ = holder;
  // The lock of a ring that has moved may stay taken forever, so the head is checked here.
  const auto head = DecodeHead(HeadPart(lines));
  consumer_sleeps_ = head.has_value() && (head->flags & kFlagSleeping) != 0;
  if (!head.has_value() ||
      (head->generation == grant_.generation && (head->flags & kFlagRetired) == 0)) {
    return Step::kRetry;
  }
  result = Busy(counters_.busy_unreadable, "RING_MOVED", true);
  return Step::kDone;
}

// This sender holds the lock. Decides where the message goes, or frees the lock when it cannot go.
SharedSender::Step SharedSender::Inspect(const LineWords& lines, Plan& plan, SendResult& result) {
  LineWords again = lines;
  Head head;
  if (!ReadLines(again, plan.tail, head)) {
    Unlock();
    result = Busy(counters_.busy_unreadable, "RING_UNREADABLE", channel_->broken());
    return Step::kDone;
  }
  if (!IsCurrent(head)) {
    Unlock();
    result = Busy(counters_.busy_unreadable, "RING_MOVED", true);
    return Step::kDone;
  }
  const std::uint64_t footprint = Layout::Footprint(plan.message.length_bytes);
  plan.pad_bytes = PadBefore(plan.tail.offset, footprint);
  if (!HasRoom(plan.tail, head,
               {.bytes = plan.pad_bytes + footprint, .slots = plan.pad_bytes > 0 ? 2u : 1u})) {
    Unlock();
    result = Busy(counters_.busy_full, "RING_FULL", channel_->broken());
    return Step::kDone;
  }
  plan.sleeping = (head.flags & kFlagSleeping) != 0;
  return Step::kReady;
}

// Decodes the tail and the head, and rereads them while either fails its check.
bool SharedSender::ReadLines(LineWords& lines, Tail& tail, Head& head) {
  for (int reread = 0; reread <= kMaxRereads; ++reread) {
    const auto seen_tail = DecodeTail(TailPart(lines));
    const auto seen_head = DecodeHead(HeadPart(lines));
    if (seen_tail.has_value() && seen_head.has_value()) {
      tail = *seen_tail;
      head = *seen_head;
      return true;
    }
    const Op read = Op::ReadWords("lines.reread", kTailOffset, lines);
    if (!Execute({&read, 1}).ok()) return false;
  }
  return false;
}

std::optional<Position> SharedSender::Look() {
  LineWords lines{};
  const Op read = Op::ReadWords("lines.look", kTailOffset, lines);
  if (!Execute({&read, 1}).ok()) return std::nullopt;
  const auto tail = DecodeTail(TailPart(lines));
  const auto head = DecodeHead(HeadPart(lines));
  if (!tail.has_value() || !head.has_value()) return std::nullopt;
  return Position{.oldest = head->seq, .next = tail->seq};
}

void SharedSender::Unlock() {
  std::uint64_t holder = 0;
  const Op op = Op::CompareAndSwap("lock.giveback", kLockOffset, lock_word_, 0, &holder);
  // On an error the channel is broken: the caller says `reconnect`, and the consumer breaks the
  // lock.
  (void)Execute({&op, 1});
}

// Round trip 2. The reservation is visible before the tail passes it, and the tail before the lock
// is free, so recovery can always tell how far an interrupted send got. The payload travels without
// the lock.
SendResult SharedSender::Publish(const Plan& plan, Op::Pieces pieces) {
  const Tail& tail = plan.tail;
  Slot message = plan.message;
  message.seq = tail.seq + (plan.pad_bytes > 0 ? 1 : 0);
  message.offset = tail.offset + plan.pad_bytes;
  SlotWords pad_words;
  const SlotWords reserved = EncodeSlot(message);
  message.state = SlotState::kCommitted;
  const SlotWords committed = EncodeSlot(message);
  const TailWords new_tail = EncodeTail(
      {.seq = message.seq + 1, .offset = message.offset + Layout::Footprint(message.length_bytes)});
  const std::uint64_t slot_at = layout_.SlotOffset(message.seq);
  std::uint64_t holder = 0;
  HeadWords words{};

  std::array<Op, 8> chain;
  std::size_t count = 0;
  if (plan.pad_bytes > 0) {
    pad_words = EncodeSlot(PadSlot(tail, plan.pad_bytes));
    chain[count++] = Op::WriteWords("slot.pad", layout_.SlotOffset(tail.seq), pad_words);
  }
  chain[count++] = Op::WriteWords("slot.reserve", slot_at, reserved);
  chain[count++] = Op::WriteWords("tail.write", kTailOffset, new_tail);
  chain[count++] = Op::CompareAndSwap("lock.free", kLockOffset, lock_word_, 0, &holder);
  chain[count++] = Op::Write("payload.write", layout_.PayloadOffset(message.offset), pieces);
  chain[count++] = Op::WriteWords("slot.commit", slot_at, committed);
  if (plan.sleeping) chain[count++] = Op::Notify("doorbell.ring");
  chain[count++] = Op::ReadWords("head.confirm", kHeadOffset, words);
  if (absl::Status status = Execute(std::span(chain).first(count)); !status.ok()) {
    return Unknown(std::move(status));
  }
  if (holder != lock_word_) {
    return Unknown(base::MakeError(absl::StatusCode::kAborted, "RING_FENCED",
                                   "the consumer had broken this producer's lock"));
  }
  Head head;
  return Confirm(message, words, plan.sleeping, head);
}

}  // namespace

std::unique_ptr<Sender> MakeSharedSender(std::unique_ptr<fabric::Channel> channel,
                                         const ProducerGrant& grant, const ProducerOptions& options,
                                         base::Clock& clock) {
  return std::make_unique<SharedSender>(std::move(channel), grant, options, clock);
}

}  // namespace onepiece::ring
