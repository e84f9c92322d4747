// A piece of something that is written as a gather list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onepiece::base {

/// Borrowed bytes with their checksum, so that a transport need not read them again: it combines
/// the checksums of the pieces with CombineCrc32c. INVARIANT: crc32c == Crc32c(bytes).
struct Piece {
  std::span<const std::byte> bytes;
  std::uint32_t crc32c = 0;
};

}  // namespace onepiece::base
