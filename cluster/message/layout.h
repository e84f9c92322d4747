// The bytes of a message's header. docs/message-format.md describes the format, and what a reader
// must check.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace onepiece::message {

static_assert(std::endian::native == std::endian::little,
              "the header is little-endian and mapped as it is");

inline constexpr std::array<char, 8> kMagic = {'O', 'N', 'E', 'P', 'I', 'E', 'C', 'E'};
inline constexpr std::uint32_t kVersion = 4;
/// The sizes of the NUL-padded text fields in bytes.
inline constexpr std::size_t kNameBytes = 64;
inline constexpr std::size_t kNodeBytes = 136;  ///< A node id has at most 128 bytes.

struct WireHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_crc32c;  ///< The CRC-32C of the header with 0 in this field.
  std::array<std::uint8_t, 16> uid;
  std::int64_t ingress_unix_ns;
  std::int64_t time_left_ns;  ///< Until the deadline, when this hop's sender encoded it.
  std::int64_t sent_unix_ns;
  std::uint64_t routing_epoch;
  std::uint32_t attempt;
  std::int32_t priority;
  std::uint8_t kind;
  std::array<std::uint8_t, 3> reserved;  ///< 0.
  std::uint32_t flags;                   ///< 0.
  std::uint64_t payload_bytes;           ///< The size of all that follows the header.
  std::uint32_t payload_crc32c;
  std::uint32_t table_bytes;
  std::array<char, kNameBytes> app;
  std::array<char, kNameBytes> stage;
  std::array<char, kNameBytes> sender;
  std::array<char, kNameBytes> from;
  std::array<char, kNodeBytes> keeper;
  std::uint64_t keeper_incarnation;
  std::uint64_t run;
  std::uint32_t deaths;
  std::array<std::uint8_t, 4> reserved_end;  ///< 0.
};

/// What is in a ring in place of a message that lies in memory of its own.
struct WireReference {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t crc32c;  ///< The CRC-32C of these 40 bytes with 0 in this field.
  std::uint64_t reservation;
  std::uint64_t length;  ///< The size of the message.
  std::uint32_t message_crc32c;
  std::uint32_t reserved;  ///< 0.
};

inline constexpr std::array<char, 8> kReferenceMagic = {'O', 'N', 'E', 'P', 'V', 'A', 'L', 'U'};
inline constexpr std::uint32_t kReferenceVersion = 1;

// A reader tells them apart by the size.
static_assert(sizeof(WireReference) < sizeof(WireHeader));
static_assert(sizeof(WireReference) == 40 && std::is_trivially_copyable_v<WireReference>);
static_assert(std::has_unique_object_representations_v<WireReference>);
static_assert(sizeof(WireHeader) == 512 && std::is_trivially_copyable_v<WireHeader>);
static_assert(std::has_unique_object_representations_v<WireHeader>,
              "no padding: every byte is checked");
static_assert(offsetof(WireHeader, header_crc32c) == 12 &&
              offsetof(WireHeader, ingress_unix_ns) == 32);
static_assert(offsetof(WireHeader, kind) == 72 && offsetof(WireHeader, payload_bytes) == 80);
static_assert(offsetof(WireHeader, app) == 96 && offsetof(WireHeader, sender) == 224 &&
              offsetof(WireHeader, from) == 288);
static_assert(offsetof(WireHeader, keeper) == 352 && offsetof(WireHeader, run) == 496);

}  // namespace onepiece::message
