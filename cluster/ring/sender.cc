#include "cluster/ring/sender.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"

namespace onepiece::ring {

using fabric::Op;

namespace {

// How long a send waits for a readable head once its message is committed.
constexpr base::Duration kConfirmPatience = std::chrono::milliseconds(100);
// Shorter waits are cheaper as yields than as a sleep.
constexpr base::Duration kShortestSleep = std::chrono::microseconds(50);

}  // namespace

std::unique_ptr<Sender> Sender::Make(std::unique_ptr<fabric::Channel> channel,
                                     const ProducerGrant& grant, const ProducerOptions& options,
                                     base::Clock& clock) {
  return grant.shape == Shape::kShared ? MakeSharedSender(std::move(channel), grant, options, clock)
                                       : MakeLaneSender(std::move(channel), grant, options, clock);
}

Sender::Sender(std::unique_ptr<fabric::Channel> channel, const ProducerGrant& grant,
               const ProducerOptions& options, base::Clock& clock)
    : channel_(std::move(channel)),
      grant_(grant),
      layout_{.capacity_bytes = grant.capacity_bytes, .slots = grant.slots},
      options_(options),
      clock_(clock),
      random_(base::RandomU64()) {}

std::uint64_t Sender::PadBefore(std::uint64_t offset, std::uint64_t footprint) const {
  const std::uint64_t to_wrap = layout_.capacity_bytes - offset % layout_.capacity_bytes;
  return footprint > to_wrap ? to_wrap : 0;
}

bool Sender::HasRoom(const Tail& tail, const Head& head, const Room& room) const {
  const std::uint64_t used_bytes = tail.offset - head.offset;
  const std::uint64_t used_slots = tail.seq - head.seq;
  return tail.offset % kLineBytes == 0 && used_bytes <= layout_.capacity_bytes &&
         used_slots <= layout_.slots && room.bytes <= layout_.capacity_bytes - used_bytes &&
         room.slots <= layout_.slots - used_slots;
}

bool Sender::IsCurrent(const Head& head) const {
  return head.generation == grant_.generation && (head.flags & kFlagRetired) == 0 &&
         head.capacity_bytes == layout_.capacity_bytes && head.slots == layout_.slots;
}

Slot Sender::PadSlot(const Tail& tail, std::uint64_t pad_bytes) const {
  return {.seq = tail.seq,
          .offset = tail.offset,
          .length_bytes = pad_bytes,
          .generation = grant_.generation,
          .owner = grant_.owner,
          .state = SlotState::kPad};
}

// A consumer that loses its processor while it writes the line leaves it torn for a while. Waiting
// for the consumer costs less than an unknown outcome. `seen` stays empty when the wait was in
// vain.
absl::Status Sender::ReadHeadAgain(HeadWords& line, std::optional<Head>& seen) {
  const base::MonotonicTime patience = clock_.Now() + kConfirmPatience;
  for (int reread = 0; !seen.has_value() && (reread < kMaxRereads || clock_.Now() < patience);
       ++reread) {
    if (reread >= kMaxRereads) BackOff(reread - kMaxRereads, patience);
    const Op read = Op::ReadWords("head.reread", kHeadOffset, line);
    ONEPIECE_RETURN_IF_ERROR(Execute({&read, 1}));
    seen = DecodeHead(line);
  }
  return absl::OkStatus();
}

// The message is committed. It is acknowledged only if the ring had not begun to move before that.
// A consumer that fell asleep meanwhile is woken. It publishes `sleeping` before its last look at
// the slot, and this sender commits before its last look at `sleeping`, so one of the two sees the
// other.
SendResult Sender::Confirm(const Slot& message, const HeadWords& words, bool notified, Head& head) {
  HeadWords line = words;
  std::optional<Head> seen = DecodeHead(line);
  if (!seen.has_value()) {
    if (absl::Status status = ReadHeadAgain(line, seen); !status.ok()) {
      return Unknown(std::move(status));
    }
  }
  if (!seen.has_value()) {
    return Unknown(base::MakeError(absl::StatusCode::kAborted, "RING_UNREADABLE",
                                   "the head stays unreadable after the message was written"));
  }
  if (!IsCurrent(*seen)) {
    return Unknown(base::MakeError(absl::StatusCode::kAborted, "RING_MOVED",
                                   "the ring moved while the message was written"));
  }
  head = *seen;
  if (notified) ++counters_.notifies;
  if (!notified && (head.flags & kFlagSleeping) != 0) {
    const Op ring = Op::Notify("doorbell.late");
    (void)Execute({&ring, 1});
    ++counters_.notifies;
  }
  ++counters_.sent;
  counters_.sent_bytes += message.length_bytes;
  return {.outcome = SendOutcome::kOk, .reconnect = channel_->broken(), .detail = {}};
}

void Sender::BackOff(int attempt, base::MonotonicTime deadline) {
  const auto longest = options_.backoff_max.count();
  const auto limit = std::min(longest, options_.backoff_min.count() << std::min(attempt, 20));
  const base::Duration wait(
      limit / 2 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(limit / 2 + 1)));
  if (wait >= kShortestSleep) {
    clock_.Pause({}, std::min<base::Duration>(wait, deadline - clock_.Now()));
    return;
  }
  const base::MonotonicTime until = clock_.Now() + wait;
  do {
    std::this_thread::yield();
  } while (clock_.Now() < until && clock_.Now() < deadline);
}

SendResult Sender::Busy(std::uint64_t& counter, const char* reason, bool reconnect) {
  ++counter;
  return {.outcome = SendOutcome::kBusy,
          .reconnect = reconnect,
          .detail = base::MakeError(absl::StatusCode::kResourceExhausted, reason,
                                    "the ring did not take the message")};
}

SendResult Sender::Unknown(absl::Status detail) {
  ++counters_.unknown;
  return {.outcome = SendOutcome::kUnknown, .reconnect = true, .detail = std::move(detail)};
}

absl::Status Sender::Execute(std::span<const Op> chain) {
  return channel_->Execute(chain, clock_.Now() + options_.chain_timeout);
}

}  // namespace onepiece::ring
