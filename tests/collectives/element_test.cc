#include "stages/collectives/element.h"

#include <QtTest>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/collectives/values.h"
#include "tests/test_main.h"

namespace onepiece::collectives {
namespace {

template <typename T>
T Combine(sdk::ElementType type, sdk::Reduction reduction, T a, T b) {
  // One byte off, as memory need not be aligned.
  std::array<std::byte, sizeof(T) + 1> from{};
  std::array<std::byte, sizeof(T) + 1> into{};
  std::memcpy(from.data() + 1, &b, sizeof b);
  std::memcpy(into.data() + 1, &a, sizeof a);
  Reduce(type, reduction, std::span(from).subspan(1), std::span(into).subspan(1));
  T result{};
  std::memcpy(&result, into.data() + 1, sizeof result);
  return result;
}

// What the 16 bits of a half stand for, by the definition of the format.
double HalfAsNumber(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

double BrainAsNumber(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// The nearest of the numbers that the format has, ties to even, found by looking at its neighbours.
template <typename AsNumber>
bool IsNearest(double wanted, std::uint16_t bits, AsNumber as_number) {
  const double got = as_number(bits);
  const double error = std::abs(got - wanted);
  for (const int step : {-1, 1}) {
    const auto other = static_cast<std::uint16_t>(bits + step);
    if ((other & 0x8000) != (bits & 0x8000)) continue;
    const double number = as_number(other);
    if (!std::isfinite(number)) continue;
    const double its = std::abs(number - wanted);
    if (its < error || (its == error && (bits & 1) != 0)) return false;
  }
  return true;
}

}  // namespace

class ElementTest : public QObject {
  Q_OBJECT
  using Type = sdk::ElementType;
  static constexpr sdk::Reduction kSum = sdk::Reduction::kSum;
  static constexpr sdk::Reduction kMax = sdk::Reduction::kMax;

  template <typename AsNumber>
  static void CheckSums(Type type, AsNumber as_number) {
    base::SplitMix64 random(7);
    for (int i = 0; i < 300'000; ++i) {
      const auto a = static_cast<std::uint16_t>(random.Next());
      // Often of the same magnitude, where the mantissas matter.
      const auto b =
          static_cast<std::uint16_t>(i % 2 == 0 ? random.Next() : a ^ (random.Next() & 0x8FFF));
      const double wanted = as_number(a) + as_number(b);
      const std::uint16_t sum = Combine(type, kSum, a, b);
      if (std::isnan(wanted)) {
        QVERIFY(std::isnan(as_number(sum)));
      } else if (std::isfinite(as_number(sum))) {
        QVERIFY2(IsNearest(wanted, sum, as_number), qPrintable(QString::number(a, 16)));
      } else {
        // Too large: half of the last step more than the largest number.
        QVERIFY(std::abs(wanted) >= (type == Type::kF16 ? 65520.0 : 3.39e38));
      }
    }
  }

 private Q_SLOTS:
  void EveryHalf_PlusZero_IsItself_data() {
    QTest::addColumn<int>("type");
    QTest::newRow("f16") << static_cast<int>(Type::kF16);
    QTest::newRow("bf16") << static_cast<int>(Type::kBF16);
  }
  void EveryHalf_PlusZero_IsItself() {
    QFETCH(int, type);
    const auto as_number = static_cast<Type>(type) == Type::kF16 ? HalfAsNumber : BrainAsNumber;
    for (int bits = 0; bits < 65536; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const std::uint16_t sum = Combine(static_cast<Type>(type), kSum, half, std::uint16_t{0x8000});
      if (std::isnan(as_number(half))) {
        QVERIFY(std::isnan(as_number(sum)));
      } else {
        QCOMPARE(sum, half);
      }
    }
  }

  void SumsOf16Bits_RoundToTheNearest() {
    CheckSums(Type::kF16, HalfAsNumber);
    CheckSums(Type::kBF16, BrainAsNumber);
  }

  void LargeSums_OfHalves_AreInfinite() {
    QCOMPARE(Combine(Type::kF16, kSum, std::uint16_t{0x7BFF}, std::uint16_t{0x4C00}),
             std::uint16_t{0x7C00});  // 65504 + 16 lies half way to 65536.
    QCOMPARE(Combine(Type::kF16, kSum, std::uint16_t{0x7BFF}, std::uint16_t{0x4B80}),
             std::uint16_t{0x7BFF});  // 65504 + 15.
  }

  void Maximum_OfNaN_IsNaN() {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    QVERIFY(std::isnan(Combine(Type::kF32, kMax, nan, 1.0F)));
    QVERIFY(std::isnan(Combine(Type::kF32, kMax, 1.0F, nan)));
    QCOMPARE(Combine(Type::kF64, kMax, -2.0, -1.0), -1.0);
    QCOMPARE(Combine(Type::kI64, kMax, std::int64_t{-2}, std::int64_t{1} << 40),
             std::int64_t{1} << 40);
    QCOMPARE(Combine(Type::kF16, kMax, std::uint16_t{0xC000}, std::uint16_t{0x3C00}),
             std::uint16_t{0x3C00});  // -2 and 1.
  }

  void SumsOfIntegers_WrapAround() {
    QCOMPARE(Combine(Type::kI32, kSum, std::numeric_limits<std::int32_t>::max(), std::int32_t{1}),
             std::numeric_limits<std::int32_t>::min());
  }

  void Sizes_AreThoseOfTheTypes() {
    for (const Type type : kTypes) QCOMPARE(ElementBytes(type), TestBytes(type));
  }
};

}  // namespace onepiece::collectives

ONEPIECE_TEST(onepiece::collectives::ElementTest)
#include "element_test.moc"
