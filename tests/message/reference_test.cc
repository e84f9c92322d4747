// References to messages that lie in reserved memory.
#include "cluster/message/reference.h"

#include <QtTest>
#include <cstring>

#include "cluster/base/crc32c.h"
#include "cluster/message/layout.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::message {
namespace {

constexpr Reference kReference = {
    .reservation = 0x0102030405060708, .length_bytes = 1 << 30, .crc32c = 0xdeadbeef};

// A reference whose checksum is right, whatever `change` makes of it.
std::array<std::byte, kReferenceBytes> Changed(void (*change)(WireReference&)) {
  auto bytes = EncodeReference(kReference);
  WireReference wire;
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  change(wire);
  wire.crc32c = 0;
  wire.crc32c = base::Crc32c(std::as_bytes(std::span(&wire, 1)));
  std::memcpy(bytes.data(), &wire, sizeof(wire));
  return bytes;
}

}  // namespace

class ReferenceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Decode_GivesWhatWasEncoded() {
    const auto bytes = EncodeReference(kReference);
    QVERIFY(IsReference(bytes));
    const auto decoded = DecodeReference(bytes);
    QVERIFY(decoded.ok() && *decoded == kReference);
  }

  // The layout of docs/message-format.md.
  void Encode_KeepsTheLayout() {
    const auto bytes = EncodeReference(kReference);
    QCOMPARE(std::memcmp(bytes.data(), "ONEPVALU\1\0\0\0", 12), 0);
    QCOMPARE(std::memcmp(bytes.data() + 16, "\x08\7\6\5\4\3\2\1\0\0\0\x40\0\0\0\0", 16), 0);
    QCOMPARE(std::memcmp(bytes.data() + 32, "\xef\xbe\xad\xde\0\0\0\0", 8), 0);
  }

  void Decode_RefusesEveryChangedByte() {
    for (std::size_t i = 0; i < kReferenceBytes; ++i) {
      auto bytes = EncodeReference(kReference);
      bytes[i] ^= std::byte{1};
      QCOMPARE(Reason(DecodeReference(bytes).status()), std::string("MALFORMED_MESSAGE"));
    }
  }

  void Decode_RefusesWhatNobodySends() {
    QVERIFY(DecodeReference(Changed([](WireReference&) {})).ok());
    for (auto* const change : {+[](WireReference& wire) { wire.reservation = 0; },
                               +[](WireReference& wire) { wire.length = 0; },
                               +[](WireReference& wire) { wire.reserved = 1; },
                               +[](WireReference& wire) { wire.version = kReferenceVersion + 1; },
                               +[](WireReference& wire) { wire.magic = kMagic; }}) {
      QCOMPARE(Reason(DecodeReference(Changed(change)).status()), std::string("MALFORMED_MESSAGE"));
    }
    QVERIFY(!DecodeReference({}).ok());
    QVERIFY(!DecodeReference(std::array<std::byte, kReferenceBytes + 1>{}).ok());
  }
};

}  // namespace onepiece::message

ONEPIECE_TEST(onepiece::message::ReferenceTest)
#include "reference_test.moc"
