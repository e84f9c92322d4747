#include "cluster/base/sha256.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::base {

class Sha256Test : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // FIPS 180-2, appendix B: one block, two blocks, a million bytes in pieces.
  void Sha256_MatchesTheStandardsExample() {
    Sha256 sha256;
    sha256.Update("a");
    sha256.Update("bc");
    QCOMPARE(sha256.FinishHex(),
             std::string("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    QCOMPARE(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
             std::string("248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"));
    Sha256 million;
    for (int i = 0; i < 1000; ++i) million.Update(std::string(1000, 'a'));
    QCOMPARE(million.FinishHex(),
             std::string("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
  }

  void Sha256_OfNothing() {
    QCOMPARE(Sha256Hex(""),
             std::string("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
  }

  void Digest_IsWhatTheHexadecimalDigitsSay() {
    const std::string text("\0\x80\xff", 3);
    const auto bytes = std::as_bytes(std::span(text));
    const std::string digest = Sha256Digest(bytes);
    QCOMPARE(digest.size(), std::size_t{32});
    QCOMPARE(QByteArray::fromStdString(digest).toHex().toStdString(), Sha256Hex(bytes));
    QCOMPARE(Sha256Hex(bytes), Sha256Hex(text));
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::Sha256Test)
#include "sha256_test.moc"
