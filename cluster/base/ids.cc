#include "cluster/base/ids.h"

#include <sys/random.h>

#include <cstring>

#include "cluster/base/check.h"

namespace onepiece::base {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool IsDashAt(std::size_t text_index) {
  return text_index == 8 || text_index == 13 || text_index == 18 || text_index == 23;
}

// Writes RFC 9562's version and variant bits into otherwise random bytes.
void SetVersion(std::array<std::uint8_t, 16>& bytes, std::uint8_t version) {
  bytes[6] = static_cast<std::uint8_t>((bytes[6] & 0x0f) | (version << 4));
  bytes[8] = static_cast<std::uint8_t>((bytes[8] & 0x3f) | 0x80);
}

}  // namespace

void FillRandom(void* out, std::size_t count) {
  auto* bytes = static_cast<std::uint8_t*>(out);
  while (count > 0) {
    const ssize_t got = getrandom(bytes, count, 0);
    ONEPIECE_CHECK(got > 0);
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
}

std::uint64_t RandomU64() {
  std::uint64_t value = 0;
  while (value == 0) FillRandom(&value, sizeof value);
  return value;
}

Uid Uid::Generate(std::int64_t unix_ms) {
  std::array<std::uint8_t, 16> bytes;
  FillRandom(bytes.data(), bytes.size());
  for (std::size_t i = 0; i < 6; ++i) {
    bytes[i] = static_cast<std::uint8_t>(static_cast<std::uint64_t>(unix_ms) >> (8 * (5 - i)));
  }
  SetVersion(bytes, 7);
  return Uid(bytes);
}

Uid Uid::GenerateRandom() {
  std::array<std::uint8_t, 16> bytes;
  FillRandom(bytes.data(), bytes.size());
  SetVersion(bytes, 4);
  return Uid(bytes);
}

std::optional<Uid> Uid::Parse(std::string_view text) {
  if (text.size() != 36) return std::nullopt;
  std::array<std::uint8_t, 16> bytes{};
  std::size_t nibble = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (IsDashAt(i)) {
      if (text[i] != '-') return std::nullopt;
      continue;
    }
    const int value = HexValue(text[i]);
    if (value < 0) return std::nullopt;
    bytes[nibble / 2] = static_cast<std::uint8_t>((bytes[nibble / 2] << 4) | value);
    ++nibble;
  }
  return Uid(bytes);
}

std::string Uid::ToString() const {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(36);
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    if (IsDashAt(text.size())) text.push_back('-');
    text.push_back(kHex[bytes_[i] >> 4]);
    text.push_back(kHex[bytes_[i] & 0x0f]);
  }
  return text;
}

}  // namespace onepiece::base

std::size_t std::hash<onepiece::base::Uid>::operator()(
    const onepiece::base::Uid& uid) const noexcept {
  // The low half is random in every version that we make.
  std::uint64_t low;
  std::memcpy(&low, uid.bytes().data() + 8, sizeof low);
  return low;
}
