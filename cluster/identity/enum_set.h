// A small set of the values of an enum, such as scopes or roles.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace onepiece::identity {

/// A set of values of `Enum`, which count from 0 and are at most 32. A value type.
///
/// Threading: thread-safe to read.
template <typename Enum>
class EnumSet {
 public:
  constexpr EnumSet() = default;
  constexpr EnumSet(std::initializer_list<Enum> values) {
    for (const Enum value : values) Add(value);
  }
  constexpr void Add(Enum value) { bits_ |= Bit(value); }
  constexpr void Add(EnumSet others) { bits_ |= others.bits_; }
  [[nodiscard]] constexpr bool Has(Enum value) const { return (bits_ & Bit(value)) != 0; }
  [[nodiscard]] constexpr bool HasAnyOf(EnumSet others) const {
    return (bits_ & others.bits_) != 0;
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  friend constexpr bool operator==(EnumSet, EnumSet) = default;

 private:
  static constexpr std::uint32_t Bit(Enum value) {
    return std::uint32_t{1} << static_cast<unsigned>(value);
  }
  std::uint32_t bits_ = 0;
};

}  // namespace onepiece::identity
