#include "stages/collectives/element.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "cluster/base/check.h"

namespace onepiece::collectives {
namespace {

// Each type says how an element lies in memory and as what it is reduced.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static T Load(T stored) { return stored; }
  static T Store(T value) { return value; }
};

struct BFloat16 {
  using Stored = std::uint16_t;
  using Value = float;
  static float Load(std::uint16_t stored) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(stored) << 16);
  }
  static std::uint16_t Store(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    // Rounding would carry the mantissa of some NaNs into infinity.
    if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
};

struct Float16 {
  using Stored = std::uint16_t;
  using Value = float;
  // A half's exponent and mantissa, moved to where a float has them, stand for the value times
  // 2^-112. The product is exact, also where the half is subnormal.
  static float Load(std::uint16_t stored) {
    const std::uint32_t sign = static_cast<std::uint32_t>(stored & 0x8000) << 16;
    const std::uint32_t rest = static_cast<std::uint32_t>(stored & 0x7FFF) << 13;
    if (rest >= 0x0F800000) return std::bit_cast<float>(sign | 0x70000000 | rest);  // Inf, NaN.
    const float magnitude = std::bit_cast<float>(rest) * 0x1p112F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  static std::uint16_t Store(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
    const std::uint32_t rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return sign | 0x7E00;
    if (rest >= 0x477FF000) return sign | 0x7C00;  // Rounds to more than 65504.
    if (rest < 0x38800000) {
      // Subnormal: the float addition rounds to a multiple of 2^-24.
      const float shifted = std::bit_cast<float>(rest) + 0.5F;
      return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3F000000);
    }
    const std::uint32_t rounded = rest + 0xFFF + ((rest >> 13) & 1);
    return sign | static_cast<std::uint16_t>((rounded - 0x38000000) >> 13);
  }
};

template <typename T>
struct Sum {
  static T Of(T a, T b) {
    if constexpr (std::is_integral_v<T>) {  // Wraps around, as on every device.
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

template <typename T>
struct Max {
  static T Of(T a, T b) { return b > a || b != b ? b : a; }
};

template <typename Type, template <typename> typename Operation>
void ReduceAll(std::span<const std::byte> from, std::span<std::byte> into) {
  using Stored = typename Type::Stored;
  using Value = typename Type::Value;
  const std::byte* source = from.data();
  std::byte* target = into.data();
  for (std::size_t at = 0; at + sizeof(Stored) <= into.size(); at += sizeof(Stored)) {
    Stored a{};
    Stored b{};
    std::memcpy(&a, target + at, sizeof a);
    std::memcpy(&b, source + at, sizeof b);
    const Stored c = Type::Store(Operation<Value>::Of(Type::Load(a), Type::Load(b)));
    std::memcpy(target + at, &c, sizeof c);
  }
}

template <typename Type>
void ReduceBy(sdk::Reduction reduction, std::span<const std::byte> from,
              std::span<std::byte> into) {
  switch (reduction) {
    case sdk::Reduction::kSum:
      return ReduceAll<Type, Sum>(from, into);
    case sdk::Reduction::kMax:
      return ReduceAll<Type, Max>(from, into);
  }
}

}  // namespace

std::size_t ElementBytes(sdk::ElementType type) {
  switch (type) {
    case sdk::ElementType::kF16:
    case sdk::ElementType::kBF16:
      return 2;
    case sdk::ElementType::kF32:
    case sdk::ElementType::kI32:
      return 4;
    case sdk::ElementType::kF64:
    case sdk::ElementType::kI64:
      return 8;
  }
  return 1;
}

void Reduce(sdk::ElementType type, sdk::Reduction reduction, std::span<const std::byte> from,
            std::span<std::byte> into) {
  ONEPIECE_CHECK(from.size() == into.size() && into.size() % ElementBytes(type) == 0);
  switch (type) {
    case sdk::ElementType::kF32:
      return ReduceBy<Plain<float>>(reduction, from, into);
    case sdk::ElementType::kF64:
      return ReduceBy<Plain<double>>(reduction, from, into);
    case sdk::ElementType::kF16:
      return ReduceBy<Float16>(reduction, from, into);
    case sdk::ElementType::kBF16:
      return ReduceBy<BFloat16>(reduction, from, into);
    case sdk::ElementType::kI32:
      return ReduceBy<Plain<std::int32_t>>(reduction, from, into);
    case sdk::ElementType::kI64:
      return ReduceBy<Plain<std::int64_t>>(reduction, from, into);
  }
}

}  // namespace onepiece::collectives
