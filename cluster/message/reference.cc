#include "cluster/message/reference.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/message/layout.h"

namespace onepiece::message {
namespace {

static_assert(sizeof(WireReference) == kReferenceBytes);

std::uint32_t CrcOf(WireReference wire) {
  wire.crc32c = 0;
  return base::Crc32c(std::as_bytes(std::span(&wire, 1)));
}

absl::Status MalformedReference(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_MESSAGE",
                         "malformed reference: " + what);
}

}  // namespace

std::array<std::byte, kReferenceBytes> EncodeReference(const Reference& reference) {
  WireReference wire{};
  wire.magic = kReferenceMagic;
  wire.version = kReferenceVersion;
  wire.reservation = reference.reservation;
  wire.length = reference.length_bytes;
  wire.message_crc32c = reference.crc32c;
  wire.crc32c = CrcOf(wire);
  std::array<std::byte, kReferenceBytes> bytes;
  std::memcpy(bytes.data(), &wire, sizeof(wire));
  return bytes;
}

absl::StatusOr<Reference> DecodeReference(std::span<const std::byte> bytes) {
  WireReference wire;
  if (bytes.size() != sizeof(wire)) return MalformedReference("not of 40 bytes");
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  if (wire.magic != kReferenceMagic) return MalformedReference("wrong magic");
  if (wire.version != kReferenceVersion) {
    return MalformedReference("version " + std::to_string(wire.version) +
                              "; this program reads version " + std::to_string(kReferenceVersion));
  }
  if (wire.crc32c != CrcOf(wire)) return MalformedReference("wrong checksum");
  if (wire.reserved != 0) return MalformedReference("unknown flags");
  if (wire.reservation == 0 || wire.length == 0) return MalformedReference("it names nothing");
  return Reference{
      .reservation = wire.reservation, .length_bytes = wire.length, .crc32c = wire.message_crc32c};
}

}  // namespace onepiece::message
