#include "cluster/base/crc32c.h"

#include <QtTest>
#include <random>
#include <string_view>
#include <vector>

#include "tests/test_main.h"

namespace onepiece::base {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::vector<std::byte> RandomBytes(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Bit by bit, straight from the definition: independent of tables and instructions.
std::uint32_t Reference(std::span<const std::byte> data) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const std::byte byte : data) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

}  // namespace

class Crc32cTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Crc32c_MatchesRfc3720Vectors() {
    QCOMPARE(Crc32c(Bytes("123456789")), 0xE3069283U);
    QCOMPARE(Crc32c(std::vector<std::byte>(32)), 0x8A9136AAU);
    QCOMPARE(Crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62A8AB43U);
  }

  void Crc32c_MatchesDefinitionAtEveryStreamBoundary() {
    for (const std::size_t size : {0, 1, 7, 8, 9, 12287, 12288, 12289, 24576, 24583, 100001}) {
      const auto bytes = RandomBytes(size);
      QCOMPARE(Crc32c(bytes), Reference(bytes));
      std::vector<std::byte> copy(size);
      QCOMPARE(CopyWithCrc32c(bytes, copy), Reference(bytes));
      QVERIFY(copy == bytes);
    }
  }

  void CombineAndExtend_AgreeWithOnePass() {
    const auto bytes = RandomBytes(50000);
    for (const std::size_t cut : {0, 1, 63, 4096, 12288, 49999, 50000}) {
      const auto a = std::span(bytes).first(cut);
      const auto b = std::span(bytes).subspan(cut);
      QCOMPARE(ExtendCrc32c(Crc32c(a), b), Reference(bytes));
      QCOMPARE(CombineCrc32c(Crc32c(a), Crc32c(b), b.size()), Reference(bytes));
    }
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::Crc32cTest)
#include "crc32c_test.moc"
