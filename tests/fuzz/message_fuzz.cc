// Gives any bytes to Decode: as they come, and with magic, version, lengths and checksums
// corrected, so that the checks behind those run too. A message that Decode accepts must survive
// Encode and Decode unchanged.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/message/layout.h"
#include "cluster/message/message.h"

namespace onepiece::message {
namespace {

Buffer Copy(std::span<const std::byte> bytes) {
  const auto memory = AllocateAligned(bytes.size());
  std::ranges::copy(bytes, memory.get());
  return {memory, {memory.get(), bytes.size()}};
}

Buffer Join(const Encoded& encoded) {
  const auto memory = AllocateAligned(encoded.total_bytes);
  std::byte* to = memory.get();
  for (const Piece& piece : encoded.pieces) to = std::ranges::copy(piece.bytes, to).out;
  return {memory, {memory.get(), encoded.total_bytes}};
}

void DecodeAndBack(std::span<const std::byte> bytes, Checksum checksum) {
  const auto first = Decode(Copy(bytes), checksum, {});
  if (!first.ok()) return;
  const auto encoded = Encode(*first, {});
  ONEPIECE_CHECK(encoded.ok());
  const auto second = Decode(Join(*encoded), Checksum::kVerify, {});
  ONEPIECE_CHECK(second.ok());
  ONEPIECE_CHECK(first->header.uid == second->header.uid &&
                 first->header.stage == second->header.stage &&
                 first->header.from == second->header.from);
  // NaN parameters are not equal to themselves, so only the names are compared.
  ONEPIECE_CHECK(std::ranges::equal(
      first->parameters, second->parameters, {}, [](auto& p) { return p.first; },
      [](auto& p) { return p.first; }));
  ONEPIECE_CHECK(first->artifacts.size() == second->artifacts.size());
  for (std::size_t i = 0; i < first->artifacts.size(); ++i) {
    const Artifact& a = first->artifacts[i];
    const Artifact& b = second->artifacts[i];
    ONEPIECE_CHECK(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
                   a.data.text() == b.data.text());
  }
}

}  // namespace
}  // namespace onepiece::message

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::message;
  std::vector<std::byte> bytes(size);
  std::ranges::copy(std::as_bytes(std::span(data, size)), bytes.begin());
  DecodeAndBack(bytes, Checksum::kVerify);
  WireHeader header;
  if (size < sizeof(header)) return 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  header.magic = kMagic;
  header.version = kVersion;
  header.reserved = {};
  header.reserved_end = {};
  header.flags = 0;
  header.payload_bytes = size - sizeof(header);
  header.header_crc32c = 0;
  header.header_crc32c = onepiece::base::Crc32c(std::as_bytes(std::span(&header, 1)));
  std::memcpy(bytes.data(), &header, sizeof(header));
  DecodeAndBack(bytes, Checksum::kVerified);
  return 0;
}
