// CRC-32C (Castagnoli polynomial 0x1EDC6F41, RFC 3720 appendix B.4), the checksum of ring slots,
// ring payloads and messages. Uses SSE4.2 in three interleaved streams where the processor has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace onepiece::base {

/// CRC of `data`; Crc32c("123456789") is 0xE3069283. Thread-safe.
std::uint32_t Crc32c(std::span<const std::byte> data);
/// CRC of the bytes that gave `crc`, followed by `data`.
std::uint32_t ExtendCrc32c(std::uint32_t crc, std::span<const std::byte> data);
/// CRC of A followed by B, from crc(A), crc(B) and B's length, without reading either.
std::uint32_t CombineCrc32c(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b);
/// Copies `from` to `to` (same size, no overlap) and returns the CRC of what was copied: one pass
/// over memory.
std::uint32_t CopyWithCrc32c(std::span<const std::byte> from, std::span<std::byte> to);

}  // namespace onepiece::base
