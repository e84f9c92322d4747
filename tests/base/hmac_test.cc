#include "cluster/base/hmac.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::base {

class HmacTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // RFC 4231, test cases 1, 2 and 6.
  void Hmac_MatchesTheStandardsExamples() {
    const auto hex = [](const std::string& code) {
      return QByteArray::fromStdString(code).toHex().toStdString();
    };
    QCOMPARE(hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
             std::string("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
    QCOMPARE(hex(HmacSha256("Jefe", "what do ya want for nothing?")),
             std::string("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
    QCOMPARE(hex(HmacSha256(std::string(131, '\xaa'),
                            "Test Using Larger Than Block-Size Key - Hash Key First")),
             std::string("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
  }

  void EqualSecrets_ComparesAllBytes() {
    QVERIFY(EqualSecrets("", ""));
    QVERIFY(EqualSecrets(std::string("a\0b", 3), std::string("a\0b", 3)));
    QVERIFY(!EqualSecrets(std::string("a\0b", 3), std::string("a\0c", 3)));
    QVERIFY(!EqualSecrets("ab", "a"));
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::HmacTest)
#include "hmac_test.moc"
