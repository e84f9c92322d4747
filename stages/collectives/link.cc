#include "stages/collectives/link.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cluster/base/check.h"

namespace onepiece::collectives {

using fabric::LoadWord;
using fabric::Op;

Link::Link(const AreaLayout& layout, std::uint32_t self, std::uint32_t peer, std::byte* region,
           std::unique_ptr<fabric::Access> access, std::unique_ptr<fabric::Channel> channel)
    : layout_(layout),
      self_(self),
      peer_(peer),
      region_(region),
      access_(std::move(access)),
      channel_(std::move(channel)),
      former_checks_(layout.slots, 0) {
  chain_.reserve(4);
}

absl::Status Link::Run(base::MonotonicTime deadline) {
  absl::Status status = channel_->Execute(chain_, deadline);
  if (failure_.ok()) failure_ = status;
  return status;
}

void Link::NoteRead(std::uint64_t count) {
  // A peer may be any program: more than was sent cannot have been read.
  if (count <= sent_) sent_read_ = std::max(sent_read_, count);
}

bool Link::CanSend() {
  if (sent_ - sent_read_ < layout_.slots) return true;
  NoteRead(LoadWord(region_ + layout_.ReadLine(peer_)));
  return sent_ - sent_read_ < layout_.slots;
}

absl::Status Link::Send(ChunkHeader header, std::span<const std::byte> chunk,
                        base::MonotonicTime deadline) {
  ONEPIECE_CHECK(chunk.size() <= layout_.slot_bytes && sent_ - sent_read_ < layout_.slots);
  header.sequence = ++sent_;
  header.chunk_bytes = static_cast<std::uint32_t>(chunk.size());
  header.read = static_cast<std::uint32_t>(received_);
  const HeaderWords words = Encode(header);
  const std::uint64_t at = layout_.SlotHeader(self_, sent_);
  const std::array<std::span<const std::byte>, 1> pieces{chunk};
  chain_.clear();
  if (!chunk.empty()) chain_.push_back(Op::Write("payload", at + kLineBytes, pieces));
  chain_.push_back(Op::WriteWords("header", at, words));
  const std::uint64_t naps = LoadWord(region_ + layout_.SleepWord(peer_));
  if (naps != naps_rung_) {
    naps_rung_ = naps;
    chain_.push_back(Op::Notify("ring"));
  }
  ONEPIECE_RETURN_IF_ERROR(Run(deadline));
  received_told_ = received_;
  RingIfAsleep(deadline);
  return absl::OkStatus();
}

void Link::RingIfAsleep(base::MonotonicTime deadline) {
  const std::uint64_t naps = LoadWord(region_ + layout_.SleepWord(peer_));
  if (naps == naps_rung_) return;
  naps_rung_ = naps;
  chain_.assign({Op::Notify("ring")});
  // The chunk has arrived. The peer may have found it without being rung, and have left.
  (void)Run(deadline);
}

const ChunkHeader* Link::Peek() {
  if (next_.has_value()) return &*next_;
  const std::byte* at = region_ + layout_.SlotHeader(peer_, received_ + 1);
  const std::uint64_t check = LoadWord(at + kLineBytes - 8);
  if (check == former_checks_[received_ % layout_.slots]) return nullptr;
  HeaderWords words;
  fabric::LoadWords(at, words);
  next_ = Decode(words, received_ + 1);
  if (!next_.has_value()) return nullptr;
  former_checks_[received_ % layout_.slots] = words.back();
  // The count in the header is the low half of one that is at most `slots` behind what was sent.
  NoteRead(sent_ - (static_cast<std::uint32_t>(sent_) - next_->read));
  next_->chunk_bytes = std::min(next_->chunk_bytes, static_cast<std::uint32_t>(layout_.slot_bytes));
  return &*next_;
}

std::span<const std::byte> Link::payload() const {
  return {region_ + layout_.SlotHeader(peer_, received_ + 1) + kLineBytes, next_->chunk_bytes};
}

absl::Status Link::Read(std::uint64_t epoch, base::MonotonicTime deadline) {
  ONEPIECE_CHECK(next_.has_value());
  next_.reset();
  ++received_;
  if (received_ - received_told_ < layout_.slots / 2) return absl::OkStatus();
  const std::array<std::uint64_t, 2> words{received_, epoch};
  chain_.assign({Op::WriteWords("read", layout_.ReadLine(self_), words)});
  ONEPIECE_RETURN_IF_ERROR(Run(deadline));
  received_told_ = received_;
  RingIfAsleep(deadline);
  return absl::OkStatus();
}

absl::Status Link::AnnounceSleep(base::MonotonicTime deadline) {
  const std::array<std::uint64_t, 1> word{++naps_};
  chain_.assign({Op::WriteWords("sleep", layout_.SleepWord(self_), word)});
  return Run(deadline);
}

absl::Status Link::Tell(const Notice& notice, base::MonotonicTime deadline) {
  const NoticeWords words = Encode(notice);
  chain_.assign({Op::WriteWords("notice", layout_.NoticeLine(self_), words), Op::Notify("ring")});
  return Run(deadline);
}

std::optional<Notice> Link::notice() const {
  const std::byte* at = region_ + layout_.NoticeLine(peer_);
  if (LoadWord(at + 3 * sizeof(std::uint64_t)) == 0) return std::nullopt;
  NoticeWords words;
  fabric::LoadWords(at, words);
  return Decode(words);
}

std::uint64_t Link::peer_epoch() const {
  return LoadWord(region_ + layout_.ReadLine(peer_) + sizeof(std::uint64_t));
}

base::MonotonicTime Link::LastSign(base::MonotonicTime now) {
  const std::uint64_t signs = LoadWord(region_ + layout_.SleepWord(peer_)) +
                              LoadWord(region_ + layout_.ReadLine(peer_)) + received_ +
                              (Peek() != nullptr ? 1 : 0);
  if (std::exchange(signs_, signs) != signs) last_sign_ = now;
  return last_sign_;
}

}  // namespace onepiece::collectives
