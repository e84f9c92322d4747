// The memory of the fenced double ring, in the consumer's region. It consists of 64-byte lines. One
// side writes each word. A reader may see any mix of old and new words, so each line that the other
// side reads carries its own check.
//
//     at  line
//      0  lock    0 = free, else owner:16 | nonce:48. Changed by compare-and-swap only.
//     64  tail    seq, offset, check. The lock's holder writes it, and recovery once it has fenced
//                 the holder.
//    128  head    seq, offset, generation, capacity, slots, flags, check. The consumer writes it.
//    192  slots   64 bytes each. The slot of message `seq` is number seq % slots.
//      …  buffer  The payloads, from a multiple of 4096 on.
//
// seq and offset only grow. The byte at `offset` lies at offset % capacity of the buffer. A payload
// is contiguous and takes a multiple of 64 bytes. Where a payload would wrap, a PAD slot covers the
// rest of the lap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cluster/ring/ids.h"

namespace onepiece::ring {

inline constexpr std::uint64_t kLineBytes = 64;
inline constexpr std::uint64_t kLockOffset = 0;
inline constexpr std::uint64_t kTailOffset = 1 * kLineBytes;
inline constexpr std::uint64_t kHeadOffset = 2 * kLineBytes;
inline constexpr std::uint64_t kSlotsOffset = 3 * kLineBytes;
inline constexpr std::uint64_t kBufferAlignBytes = 4096;

inline constexpr std::size_t kTailWords = 3;
inline constexpr std::size_t kHeadWords = 7;
inline constexpr std::size_t kSlotWords = kLineBytes / sizeof(std::uint64_t);
/// Tail and head lines, as one READ brings them.
inline constexpr std::size_t kLineWords = 2 * kSlotWords;
using LineWords = std::array<std::uint64_t, kLineWords>;
static_assert(kHeadOffset == kTailOffset + kLineBytes, "tail and head are read together");
static_assert(kTailWords <= kSlotWords && kHeadWords <= kSlotWords, "a line holds its words");

inline constexpr std::uint64_t kMinCapacityBytes = 4096;
inline constexpr std::uint64_t kMaxCapacityBytes = std::uint64_t{1} << 40;
inline constexpr std::uint32_t kMinSlots = 4;  // A message and its PAD, twice.
inline constexpr std::uint32_t kMaxSlots = 65536;

/// How a ring's producers share its memory.
enum class Shape : std::uint8_t {
  kShared = 1,       ///< All write into one segment; one at a time holds its lock (FDR-L).
  kPerProducer = 2,  ///< Each has a segment, which does not use its lock and tail lines (FDR-S).
};

/// A bit of Head::flags: the consumer sleeps, and whoever commits a message rings its doorbell.
inline constexpr std::uint64_t kFlagSleeping = 1;
/// A bit of Head::flags: this generation is over.
inline constexpr std::uint64_t kFlagRetired = 2;

struct Tail {
  std::uint64_t seq = 0;     ///< The next message's.
  std::uint64_t offset = 0;  ///< Where its payload starts.
  friend bool operator==(const Tail&, const Tail&) = default;
};

struct Head {
  std::uint64_t seq = 0;     ///< The oldest message's whose bytes are still held.
  std::uint64_t offset = 0;  ///< Where its payload starts.
  Generation generation;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t slots = 0;
  std::uint64_t flags = 0;
  friend bool operator==(const Head&, const Head&) = default;
};

enum class SlotState : std::uint8_t {
  kReserved = 1,   ///< Its bytes belong to `owner`, who is still writing them.
  kCommitted = 2,  ///< Complete.
  kPad = 3,        ///< Skipped bytes and no message; valid once the tail has passed it.
};

struct Slot {
  std::uint64_t seq = 0;
  std::uint64_t offset = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t message_id = 0;
  Generation generation;
  std::uint16_t owner = 0;
  SlotState state = SlotState::kReserved;
  std::uint32_t payload_crc32c = 0;
  /// False when the producer has not computed payload_crc32c; then the consumer copies without that
  /// check. The slot's own check holds all the same. It is bit 24 of the word of owner and state,
  /// inverted.
  bool payload_checked = true;
  friend bool operator==(const Slot&, const Slot&) = default;
};

using TailWords = std::array<std::uint64_t, kTailWords>;
using HeadWords = std::array<std::uint64_t, kHeadWords>;
using SlotWords = std::array<std::uint64_t, kSlotWords>;
static_assert(sizeof(SlotWords) == kLineBytes);

TailWords EncodeTail(const Tail& tail);
HeadWords EncodeHead(const Head& head);
SlotWords EncodeSlot(const Slot& slot);
/// nullopt when the check fails: the line is being written, or it is hostile.
std::optional<Tail> DecodeTail(std::span<const std::uint64_t, kTailWords> words);
std::optional<Head> DecodeHead(std::span<const std::uint64_t, kHeadWords> words);
std::optional<Slot> DecodeSlot(std::span<const std::uint64_t, kSlotWords> words);

/// owner:16 | nonce:48. REQUIRES: nonce is not 0 in its low 48 bits, so that the word is never 0.
std::uint64_t LockWord(std::uint16_t owner, std::uint64_t nonce);
std::uint16_t LockOwner(std::uint64_t word);
inline constexpr std::uint64_t kNonceMask = (std::uint64_t{1} << 48) - 1;

/// Where the lines and the buffer of one geometry lie. A value type.
struct Layout {
  std::uint64_t capacity_bytes = 0;
  std::uint32_t slots = 0;

  /// True when the geometry is within the limits above and aligned.
  [[nodiscard]] bool Valid() const;
  [[nodiscard]] std::uint64_t SlotOffset(std::uint64_t seq) const {
    return kSlotsOffset + (seq % slots) * kLineBytes;
  }
  [[nodiscard]] std::uint64_t BufferOffset() const {
    const std::uint64_t end = kSlotsOffset + std::uint64_t{slots} * kLineBytes;
    return (end + kBufferAlignBytes - 1) / kBufferAlignBytes * kBufferAlignBytes;
  }
  [[nodiscard]] std::uint64_t PayloadOffset(std::uint64_t offset) const {
    return BufferOffset() + offset % capacity_bytes;
  }
  [[nodiscard]] std::uint64_t RegionBytes() const { return BufferOffset() + capacity_bytes; }
  [[nodiscard]] std::uint64_t max_message_bytes() const { return capacity_bytes / 2; }
  /// Bytes of the buffer that a payload takes.
  static std::uint64_t Footprint(std::uint64_t length_bytes) {
    return (length_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
};

}  // namespace onepiece::ring
