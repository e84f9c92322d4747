#include "cluster/base/utf8.h"

namespace onepiece::base {
namespace {

// Length of the well-formed character at the start of `text`; 0 when there is none. REQUIRES: text
// is not empty.
std::size_t CharacterLength(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  // The second byte's range is what rules out overlong forms, surrogates and values above U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = CharacterLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes && IsUtf8(text)) return std::string(text);
  std::string clean;
  while (!text.empty()) {
    const std::size_t length = CharacterLength(text);
    const std::string_view character = length == 0 ? "?" : text.substr(0, length);
    if (clean.size() + character.size() > max_bytes) break;
    clean += character;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return clean;
}

}  // namespace onepiece::base
