// The byte strings that travel on the control plane: little-endian integers and short texts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onepiece::fabric {

inline void AppendU64(std::string& out, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

/// Length (u64) and bytes.
inline void AppendText(std::string& out, std::string_view text) {
  AppendU64(out, text.size());
  out.append(text);
}

/// Reads what the functions above wrote. After a read past the end, every read returns 0 or "" and
/// ok() is false.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  std::uint64_t U64() {
    if (rest_.size() < 8) return Fail();
    std::uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(8);
    return value;
  }
  std::string Text(std::size_t max_bytes) {
    const std::uint64_t size = U64();
    if (size > max_bytes || size > rest_.size()) {
      Fail();
      return {};
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  /// True when every read succeeded and no byte is left over.
  [[nodiscard]] bool Finished() const { return ok_ && rest_.empty(); }

 private:
  std::uint64_t Fail() {
    ok_ = false;
    rest_ = {};
    return 0;
  }
  std::string_view rest_;
  bool ok_ = true;
};

inline constexpr std::size_t kMaxNamePartBytes = 64;

inline bool IsNamePartCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

/// True for 1 to 64 letters, digits, '-' and '_'.
inline bool ValidNamePart(std::string_view part) {
  return !part.empty() && part.size() <= kMaxNamePartBytes &&
         std::ranges::all_of(part, IsNamePartCharacter);
}

/// A label for Fabric::Register that resembles `name`: other characters become '-', and what is
/// beyond 64 bytes is cut off. Two names may have the same label.
inline std::string LabelOf(std::string_view name) {
  std::string label(name.substr(0, kMaxNamePartBytes));
  std::ranges::replace_if(
      label, [](char c) { return !IsNamePartCharacter(c); }, '-');
  return label.empty() ? "-" : label;
}

}  // namespace onepiece::fabric
