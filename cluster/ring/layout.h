// Memory of the fenced double ring, in the consumer's region. 64-byte lines; each word has one
// class of writer; each line that the other side reads carries its own check, because a reader may
// see any mix of old and new words.
//
//   0    lock   0 = free, else owner:16 | nonce:48. Compare-and-swap only.
//   64   tail   seq, offset, check. Written by the lock's holder (by recovery, once the holder is
//   fenced). 128  head   seq, offset, generation, capacity, slots, flags, check. Written by the
//   consumer. 192  slots  64 bytes each: slot of message `seq` is number seq % slots. …    buffer
//   payloads, at a multiple of 4096.
//
// seq and offset only grow; the byte at `offset` lies at offset % capacity of the buffer. A payload
// is contiguous and takes a multiple of 64 bytes; a PAD slot covers the rest of a lap where one
// would wrap.
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

/// How producers come into a ring.
enum class Shape : std::uint8_t {
  kShared = 1,       ///< All write into one segment, one at a time holds its lock (FDR-L).
  kPerProducer = 2,  ///< A segment for each; its lock and tail lines are not used (FDR-S).
};

/// Bits of Head::flags.
inline constexpr std::uint64_t kFlagSleeping =
    1;  ///< The consumer wants its doorbell rung after a commit.
inline constexpr std::uint64_t kFlagRetired = 2;  ///< This generation is over.

struct Tail {
  std::uint64_t seq = 0;     ///< Of the next message.
  std::uint64_t offset = 0;  ///< Where its payload starts.
  friend bool operator==(const Tail&, const Tail&) = default;
};

struct Head {
  std::uint64_t seq = 0;     ///< Of the oldest message whose bytes are still held.
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
  kPad = 3,        ///< Nothing but skipped bytes; valid once the tail has passed it.
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
  /// False: the producer has computed no payload_crc32c, the consumer copies without a check. The
  /// slot's own check holds all the same. Bit 24 of the word of owner and state, inverted.
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
/// nullopt: the check fails, that is, the line is being written (or hostile).
std::optional<Tail> DecodeTail(std::span<const std::uint64_t, kTailWords> words);
std::optional<Head> DecodeHead(std::span<const std::uint64_t, kHeadWords> words);
std::optional<Slot> DecodeSlot(std::span<const std::uint64_t, kSlotWords> words);

/// owner:16 | nonce:48. REQUIRES: nonce is not 0 in its low 48 bits, so that the word is never 0.
std::uint64_t LockWord(std::uint16_t owner, std::uint64_t nonce);
std::uint16_t LockOwner(std::uint64_t word);
inline constexpr std::uint64_t kNonceMask = (std::uint64_t{1} << 48) - 1;

/// Where things lie for one geometry. A value type.
struct Layout {
  std::uint64_t capacity_bytes = 0;
  std::uint32_t slots = 0;

  /// Within the limits above and aligned.
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
