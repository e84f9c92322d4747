// Identifiers: UID of a job, and strong integer ids that the compiler keeps apart.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace onepiece::base {

/// 128-bit identifier of a job (docs/decisions/0003-uid-from-request-id.md). A value type;
/// thread-safe to read.
class Uid {
 public:
  constexpr Uid() = default;
  explicit constexpr Uid(std::array<std::uint8_t, 16> bytes) : bytes_(bytes) {}

  /// A fresh UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, 74 bits from the system's random
  /// source.
  static Uid Generate(std::int64_t unix_ms);
  /// A fresh UUIDv4: 122 random bits.
  static Uid GenerateRandom();
  /// Parses "018f2b1c-....-............" (36 characters, any case); nullopt when malformed.
  static std::optional<Uid> Parse(std::string_view text);

  /// Lower-case canonical form, 36 characters.
  [[nodiscard]] std::string ToString() const;
  [[nodiscard]] constexpr const std::array<std::uint8_t, 16>& bytes() const { return bytes_; }
  [[nodiscard]] constexpr bool IsNil() const { return *this == Uid(); }
  friend constexpr auto operator<=>(const Uid&, const Uid&) = default;

 private:
  std::array<std::uint8_t, 16> bytes_{};
};

/// An integer id of its own type: `using Epoch = StrongId<struct EpochTag>`. No integer converts to
/// it by itself, so the compiler finds two ids that change places. Ordered and hashed by its value.
template <typename Tag, typename Value = std::uint64_t>
struct StrongId {
  constexpr StrongId() = default;
  explicit constexpr StrongId(Value from) : value(from) {}
  Value value{};
  friend constexpr auto operator<=>(const StrongId&, const StrongId&) = default;
};

/// A strong id that counts, such as a place in a log: `using Slot = Ordinal<struct SlotTag>`. A
/// place plus or minus a number of places is a place, and the difference of two places is a number.
/// Two places have no sum. Arithmetic wraps around, as that of std::uint64_t does.
template <typename Tag>
struct Ordinal {
  constexpr Ordinal() = default;
  explicit constexpr Ordinal(std::uint64_t from) : value(from) {}
  std::uint64_t value{};
  constexpr Ordinal& operator++() {
    ++value;
    return *this;
  }
  friend constexpr Ordinal operator+(Ordinal from, std::uint64_t count) {
    return Ordinal(from.value + count);
  }
  friend constexpr Ordinal operator-(Ordinal from, std::uint64_t count) {
    return Ordinal(from.value - count);
  }
  /// How many places `to` is after `from`.
  friend constexpr std::uint64_t operator-(Ordinal to, Ordinal from) {
    return to.value - from.value;
  }
  friend constexpr auto operator<=>(const Ordinal&, const Ordinal&) = default;
};

/// `count` bytes from the system's random source.
void FillRandom(void* out, std::size_t count);
/// 64 bits from the system's random source, never 0.
std::uint64_t RandomU64();

}  // namespace onepiece::base

template <>
struct std::hash<onepiece::base::Uid> {
  std::size_t operator()(const onepiece::base::Uid& uid) const noexcept;
};

template <typename Tag, typename Value>
struct std::hash<onepiece::base::StrongId<Tag, Value>> {
  std::size_t operator()(onepiece::base::StrongId<Tag, Value> id) const noexcept {
    return std::hash<Value>()(id.value);
  }
};

template <typename Tag>
struct std::hash<onepiece::base::Ordinal<Tag>> {
  std::size_t operator()(onepiece::base::Ordinal<Tag> place) const noexcept {
    return std::hash<std::uint64_t>()(place.value);
  }
};
