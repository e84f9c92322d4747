// How the region of a worker is laid out, and what the header of a slot says.
//
// The region has an area for each peer, which only that peer writes. An area has three lines of
// control words and a few slots. A message is cut into chunks, one slot each; the n-th chunk that a
// peer sends goes into slot n modulo the number of slots.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "stages/collectives/checked_group.h"

namespace onepiece::collectives {

inline constexpr std::uint64_t kLineBytes = 64;

struct AreaLayout {
  std::uint32_t workers = 0;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;  ///< Of payload. A multiple of kLineBytes.

  [[nodiscard]] std::uint64_t SlotStride() const { return kLineBytes + slot_bytes; }
  [[nodiscard]] std::uint64_t AreaBytes() const { return 3 * kLineBytes + slots * SlotStride(); }
  [[nodiscard]] std::uint64_t RegionBytes() const { return workers * AreaBytes(); }
  /// How many chunks of this area's owner the peer has read, and the peer's epoch by then.
  [[nodiscard]] std::uint64_t ReadLine(std::uint32_t peer) const { return peer * AreaBytes(); }
  /// How often the peer has gone to sleep.
  [[nodiscard]] std::uint64_t SleepWord(std::uint32_t peer) const {
    return ReadLine(peer) + kLineBytes;
  }
  [[nodiscard]] std::uint64_t NoticeLine(std::uint32_t peer) const {
    return ReadLine(peer) + 2 * kLineBytes;
  }
  /// Where the header of the `sequence`-th chunk is, from 1. The payload follows it.
  [[nodiscard]] std::uint64_t SlotHeader(std::uint32_t peer, std::uint64_t sequence) const {
    return ReadLine(peer) + 3 * kLineBytes + ((sequence - 1) % slots) * SlotStride();
  }
};

/// A group as messages name it.
struct GroupKey {
  std::uint64_t epoch = 0;
  std::uint64_t hash = 0;  ///< Of all that the descriptor says.
  bool operator==(const GroupKey&) const = default;
};
GroupKey KeyOf(const sdk::GroupDescriptor& descriptor);

/// What precedes the payload of a chunk.
struct ChunkHeader {
  std::uint64_t sequence = 0;  ///< From 1, over the life of the connection.
  GroupKey group;
  Call call;
  std::uint8_t phase = 0;           ///< Of the call: the second half of an all_reduce has 1.
  std::uint64_t message_bytes = 0;  ///< Of the whole message.
  std::uint32_t chunk_bytes = 0;
  std::uint32_t read = 0;  ///< How many chunks of the receiver the sender has read, modulo 2^32.
};

using HeaderWords = std::array<std::uint64_t, 8>;
/// The last word is the check.
HeaderWords Encode(const ChunkHeader& header);
/// Returns nothing when the words are not the header of the chunk `sequence`, such as those of a
/// header that is half written.
std::optional<ChunkHeader> Decode(std::span<const std::uint64_t, 8> words, std::uint64_t sequence);

/// Tells a member why the group has ended.
struct Notice {
  enum class Why : std::uint8_t { kLost = 1, kSilent, kDiffers, kEnded };
  GroupKey group;
  Why why{};
  std::uint32_t rank = 0;  ///< Of the member that failed.
};
using NoticeWords = std::array<std::uint64_t, 4>;
NoticeWords Encode(const Notice& notice);
std::optional<Notice> Decode(std::span<const std::uint64_t, 4> words);

}  // namespace onepiece::collectives
