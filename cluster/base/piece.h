// A run of bytes with its CRC-32C, as an encoded message hands it to a transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onepiece::base {

/// Borrowed bytes and their checksum. The bytes must stay valid while the piece is in use. A
/// transport gets the checksum of all pieces from CombineCrc32c (crc32c.h), and reads no byte for
/// it.
///
/// Invariants: crc32c == Crc32c(bytes). Nobody checks it.
struct Piece {
  std::span<const std::byte> bytes;
  std::uint32_t crc32c = 0;
};

}  // namespace onepiece::base
