#include "tests/ring/paper_ring.h"

#include <array>
#include <cstring>

#include "cluster/base/crc32c.h"

namespace onepiece::ring {
namespace {

using fabric::Op;

// The header in front of every payload.
struct EntryHeader {
  std::uint64_t producer = 0;
  std::uint64_t id = 0;
  std::uint64_t size = 0;
  std::uint64_t check = 0;  // The checksum of the three above.
};

std::uint64_t CheckOf(const EntryHeader& header) {
  return base::Crc32c(std::as_bytes(std::span(&header, 1)).first(3 * sizeof(std::uint64_t)));
}

constexpr base::MonotonicTime kNoDeadline = base::MonotonicTime::max();

}  // namespace

std::uint64_t PaperLayout::Place(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t position = offset % kCapacityBytes;
  return position + bytes <= kCapacityBytes ? offset : offset + kCapacityBytes - position;
}

std::optional<PaperMessage> PaperConsumer::Poll() {
  while (true) {
    std::byte* slot =
        memory_.data() + PaperLayout::kSizes + (seq_ % PaperLayout::kSlots) * sizeof(std::uint64_t);
    const std::uint64_t word = fabric::LoadWord(slot);
    if ((word & PaperLayout::kBusy) == 0) return std::nullopt;
    const std::uint64_t size = word & ~PaperLayout::kBusy;
    const std::uint64_t at = PaperLayout::Place(offset_, size);
    EntryHeader header;
    const std::byte* entry =
        memory_.data() + PaperLayout::kBuffer + at % PaperLayout::kCapacityBytes;
    std::memcpy(&header, entry, sizeof header);
    PaperMessage message{.producer = header.producer, .id = header.id};
    message.bytes.assign(entry + sizeof header, entry + size);
    fabric::StoreWord(slot, 0);
    ++seq_;
    offset_ = at + size;
    fabric::StoreWord(memory_.data() + PaperLayout::kHead, seq_);
    fabric::StoreWord(memory_.data() + PaperLayout::kHead + 8, offset_);
    if (header.check == CheckOf(header)) return message;
  }
}

// A producer that has waited long enough releases the lock and takes it.
bool PaperProducer::Lock(int patience) {
  for (int attempt = 0; attempt <= patience; ++attempt) {
    std::uint64_t holder = 0;
    const Op take = Op::CompareAndSwap("paper.lock", PaperLayout::kLock, 0, 1, &holder);
    if (!channel_->Execute({&take, 1}, kNoDeadline).ok()) return false;
    if (holder == 0) return true;
    if (attempt + 1 != patience) continue;
    const std::uint64_t free = 0;
    const Op release = Op::WriteWords("paper.release", PaperLayout::kLock, {&free, 1});
    if (!channel_->Execute({&release, 1}, kNoDeadline).ok()) return false;
  }
  return false;
}

bool PaperProducer::Send(std::uint64_t message, std::span<const std::byte> bytes, int patience) {
  if (!Lock(patience)) return false;
  std::array<std::uint64_t, 10> lines{};  // The tail, and the head a line behind it.
  const Op read = Op::ReadWords("paper.header", PaperLayout::kTail, lines);
  if (!channel_->Execute({&read, 1}, kNoDeadline).ok()) return false;
  const std::uint64_t free = 0;
  const Op unlock = Op::WriteWords("paper.unlock", PaperLayout::kLock, {&free, 1});
  EntryHeader header{.producer = id_, .id = message, .size = bytes.size()};
  header.check = CheckOf(header);
  const std::uint64_t size = sizeof header + bytes.size();
  const std::uint64_t at = PaperLayout::Place(lines[1], size);
  if (at + size - lines[9] > PaperLayout::kCapacityBytes ||
      lines[0] - lines[8] >= PaperLayout::kSlots) {
    (void)channel_->Execute({&unlock, 1}, kNoDeadline);
    return false;
  }
  const std::array<std::span<const std::byte>, 2> pieces{std::as_bytes(std::span(&header, 1)),
                                                         bytes};
  const std::array<std::uint64_t, 2> tail{lines[0] + 1, at + size};
  std::uint64_t before = 0;
  const Op chain[] = {
      Op::Write("paper.data", PaperLayout::kBuffer + at % PaperLayout::kCapacityBytes, pieces),
      Op::CompareAndSwap(
          "paper.size",
          PaperLayout::kSizes + (lines[0] % PaperLayout::kSlots) * sizeof(std::uint64_t), 0,
          PaperLayout::kBusy | size, &before),
      Op::WriteWords("paper.tail", PaperLayout::kTail, tail), unlock};
  return channel_->Execute(chain, kNoDeadline).ok();
}

}  // namespace onepiece::ring
