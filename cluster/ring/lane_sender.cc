// FDR-S: this producer alone writes into the segment, so one round trip sends a message: it writes
// the payload and the slot, and reads the head. The sender knows where its next message goes, and
// how much room there was when the last send read the head.
#include <array>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/ring/sender.h"

namespace onepiece::ring {
namespace {

using fabric::Op;

class LaneSender final : public Sender {
 public:
  LaneSender(std::unique_ptr<fabric::Channel> channel, const ProducerGrant& grant,
             const ProducerOptions& options, base::Clock& clock)
      : Sender(std::move(channel), grant, options, clock) {}

  SendResult Send(Slot message, Op::Pieces pieces, base::MonotonicTime deadline) override;
  std::optional<Position> Look() override;

 private:
  std::optional<SendResult> LookForRoom(const Room& room);

  Tail tail_;  // Where the next message goes. A segment starts empty.
  Head head_;  // The head as last read. The true one is never behind it.
};

SendResult LaneSender::Send(Slot message, Op::Pieces pieces, base::MonotonicTime /*deadline*/) {
  // A chain that failed may have left half a message where tail_ points.
  if (channel_->broken()) return Busy(counters_.busy_unreadable, "CHANNEL_BROKEN", true);
  const std::uint64_t footprint = Layout::Footprint(message.length_bytes);
  const std::uint64_t pad_bytes = PadBefore(tail_.offset, footprint);
  const Room room{.bytes = pad_bytes + footprint, .slots = pad_bytes > 0 ? 2u : 1u};
  if (!HasRoom(tail_, head_, room)) {
    if (auto refused = LookForRoom(room)) return *std::move(refused);
  }
  message.seq = tail_.seq + room.slots - 1;
  message.offset = tail_.offset + pad_bytes;
  message.state = SlotState::kCommitted;
  SlotWords pad;
  const SlotWords committed = EncodeSlot(message);
  HeadWords words{};

  std::array<Op, 4> chain;
  std::size_t count = 0;
  chain[count++] = Op::Write("payload.write", layout_.PayloadOffset(message.offset), pieces);
  if (pad_bytes > 0) {
    pad = EncodeSlot(PadSlot(tail_, pad_bytes));
    chain[count++] = Op::WriteWords("slot.pad", layout_.SlotOffset(tail_.seq), pad);
  }
  chain[count++] = Op::WriteWords("slot.commit", layout_.SlotOffset(message.seq), committed);
  chain[count++] = Op::ReadWords("head.confirm", kHeadOffset, words);
  if (absl::Status status = Execute(std::span(chain).first(count)); !status.ok()) {
    return Unknown(std::move(status));
  }
  tail_ = {.seq = message.seq + 1, .offset = message.offset + footprint};
  return Confirm(message, words, /*notified=*/false, head_);
}

std::optional<Position> LaneSender::Look() {
  HeadWords words{};
  const Op read = Op::ReadWords("head.look", kHeadOffset, words);
  if (!Execute({&read, 1}).ok()) return std::nullopt;
  const auto head = DecodeHead(words);
  if (!head.has_value()) return std::nullopt;
  return Position{.oldest = head->seq, .next = tail_.seq};
}

// Called when the known room is too small. Reads the head, and rereads it while it fails its check.
std::optional<SendResult> LaneSender::LookForRoom(const Room& room) {
  std::optional<Head> head;
  for (int read = 0; !head.has_value() && read <= kMaxRereads; ++read) {
    HeadWords words{};
    const Op op = Op::ReadWords("head.read", kHeadOffset, words);
    if (absl::Status status = Execute({&op, 1}); !status.ok()) {
      ++counters_.busy_unreadable;
      return SendResult{
          .outcome = SendOutcome::kBusy, .reconnect = true, .detail = std::move(status)};
    }
    head = DecodeHead(words);
  }
  if (!head.has_value()) return Busy(counters_.busy_unreadable, "RING_UNREADABLE", false);
  if (!IsCurrent(*head)) return Busy(counters_.busy_unreadable, "RING_MOVED", true);
  head_ = *head;
  if (!HasRoom(tail_, head_, room)) return Busy(counters_.busy_full, "RING_FULL", false);
  return std::nullopt;
}

}  // namespace

std::unique_ptr<Sender> MakeLaneSender(std::unique_ptr<fabric::Channel> channel,
                                       const ProducerGrant& grant, const ProducerOptions& options,
                                       base::Clock& clock) {
  return std::make_unique<LaneSender>(std::move(channel), grant, options, clock);
}

}  // namespace onepiece::ring
