// A reference to a message: it travels through a ring for a message that is too large for it and
// lies in memory that the consumer has reserved (docs/message-format.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace onepiece::message {

inline constexpr std::size_t kReferenceBytes = 40;

/// A value type.
struct Reference {
  std::uint64_t reservation = 0;   ///< As the consumer has numbered it. Never 0.
  std::uint64_t length_bytes = 0;  ///< The size of the encoded message.
  std::uint32_t crc32c = 0;        ///< The CRC-32C of all its bytes.
  friend bool operator==(const Reference&, const Reference&) = default;
};

std::array<std::byte, kReferenceBytes> EncodeReference(const Reference& reference);
/// True when these bytes can only be a reference. No message is as short as one.
constexpr bool IsReference(std::span<const std::byte> bytes) {
  return bytes.size() == kReferenceBytes;
}
/// Errors: INVALID_ARGUMENT (MALFORMED_MESSAGE; the text says what is wrong).
absl::StatusOr<Reference> DecodeReference(std::span<const std::byte> bytes);

}  // namespace onepiece::message
