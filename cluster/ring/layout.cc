#include "cluster/ring/layout.h"

#include "cluster/base/crc32c.h"

namespace onepiece::ring {
namespace {

// The salt of each kind of line is part of its check, so that no kind passes for another.
constexpr std::uint64_t kTailSalt = 0x5441494c;
constexpr std::uint64_t kHeadSalt = 0x48454144;
constexpr std::uint32_t kSlotSalt = 0x534c4f54;

constexpr std::uint64_t kUncheckedBit = std::uint64_t{1} << 24;

// The salt in the high half and the CRC-32C in the low half. Zeroed memory never passes.
std::uint64_t CheckOf(std::span<const std::uint64_t> words, std::uint64_t salt) {
  return salt << 32 | base::Crc32c(std::as_bytes(words));
}

std::uint64_t StateWord(const Slot& slot) {
  return std::uint64_t{slot.owner} | static_cast<std::uint64_t>(slot.state) << 16 |
         (slot.payload_checked ? 0 : kUncheckedBit);
}

}  // namespace

TailWords EncodeTail(const Tail& tail) {
  TailWords words{tail.seq, tail.offset, 0};
  words[2] = CheckOf(std::span(words).first(2), kTailSalt);
  return words;
}

HeadWords EncodeHead(const Head& head) {
  HeadWords words{
      head.seq, head.offset, head.generation.value, head.capacity_bytes, head.slots, head.flags, 0};
  words[6] = CheckOf(std::span(words).first(6), kHeadSalt);
  return words;
}

SlotWords EncodeSlot(const Slot& slot) {
  SlotWords words{slot.seq,
                  slot.offset,
                  slot.length_bytes,
                  slot.message_id,
                  slot.generation.value,
                  StateWord(slot),
                  slot.payload_crc32c,
                  0};
  words[7] = CheckOf(std::span(words).first(7), kSlotSalt);
  return words;
}

std::optional<Tail> DecodeTail(std::span<const std::uint64_t, kTailWords> words) {
  if (words[2] != CheckOf(words.first(2), kTailSalt)) return std::nullopt;
  return Tail{.seq = words[0], .offset = words[1]};
}

std::optional<Head> DecodeHead(std::span<const std::uint64_t, kHeadWords> words) {
  if (words[6] != CheckOf(words.first(6), kHeadSalt)) return std::nullopt;
  return Head{.seq = words[0],
              .offset = words[1],
              .generation = Generation(words[2]),
              .capacity_bytes = words[3],
              .slots = words[4],
              .flags = words[5]};
}

std::optional<Slot> DecodeSlot(std::span<const std::uint64_t, kSlotWords> words) {
  if (words[7] != CheckOf(words.first(7), kSlotSalt)) return std::nullopt;
  Slot slot{.seq = words[0],
            .offset = words[1],
            .length_bytes = words[2],
            .message_id = words[3],
            .generation = Generation(words[4]),
            .owner = static_cast<std::uint16_t>(words[5]),
            .state = static_cast<SlotState>(words[5] >> 16 & 0xff),
            .payload_crc32c = static_cast<std::uint32_t>(words[6]),
            .payload_checked = (words[5] & kUncheckedBit) == 0};
  const bool known_state = slot.state == SlotState::kReserved ||
                           slot.state == SlotState::kCommitted || slot.state == SlotState::kPad;
  // Refuses bits that no writer of this layout sets.
  if (!known_state || words[5] != StateWord(slot) || words[6] >> 32 != 0) return std::nullopt;
  return slot;
}

std::uint64_t LockWord(std::uint16_t owner, std::uint64_t nonce) {
  return std::uint64_t{owner} << 48 | (nonce & kNonceMask);
}

std::uint16_t LockOwner(std::uint64_t word) { return static_cast<std::uint16_t>(word >> 48); }

bool Layout::Valid() const {
  return capacity_bytes >= kMinCapacityBytes && capacity_bytes <= kMaxCapacityBytes &&
         capacity_bytes % kLineBytes == 0 && slots >= kMinSlots && slots <= kMaxSlots;
}

}  // namespace onepiece::ring
