// Tests that what is wrong with a PEM text is said clearly.
#include "cluster/identity/pem.h"

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/private_key.h"
#include "tests/identity/sample.h"
#include "tests/program.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {
namespace {

bool Has(const absl::Status& status, const std::string& text) {
  return base::Message(status).find(text) != std::string::npos;
}

/// Runs `openssl` and returns what it prints.
std::string OpenSsl(const QStringList& arguments) {
  return onepiece::testing::RunProgram("openssl", arguments).out;
}

}  // namespace

class PemTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const Authority authority = *Authority::Create("pirates", testing::kNow);
    certificate_ = authority.certificate().ToPem();
    key_ = authority.key().ToPem();
  }

  void EveryTruncation_IsRefused() {
    for (std::size_t i = 0; i < certificate_.size() - 1; ++i) {
      const std::string reason = Reason(Certificate::FromPem(certificate_.substr(0, i)).status());
      QVERIFY2(reason == "HALF_WRITTEN",
               qPrintable(QString("%1 bytes: %2").arg(i).arg(QString::fromStdString(reason))));
    }
    for (std::size_t i = 0; i < key_.size() - 1; ++i)
      QCOMPARE(Reason(PrivateKey::FromPem(key_.substr(0, i)).status()),
               std::string("HALF_WRITTEN"));
  }

  void OtherThings_AreNamed() {
    QVERIFY(Has(Certificate::FromPem(key_).status(), "holds a PRIVATE KEY, not a CERTIFICATE"));
    QVERIFY(
        Has(PrivateKey::FromPem(certificate_).status(), "holds a CERTIFICATE, not a PRIVATE KEY"));
    QVERIFY(Has(Certificate::FromPem("{}").status(), "no PEM text"));
    QVERIFY(Has(Certificate::FromPem(certificate_ + certificate_).status(), "2 certificates"));
    QCOMPARE(Certificate::ListFromPem(certificate_ + "text\n" + certificate_)->size(),
             std::size_t{2});
    // Both in one file, in either order.
    QVERIFY(Certificate::FromPem(key_ + certificate_).ok());
    QVERIFY(PrivateKey::FromPem(certificate_ + key_).ok());
    QCOMPARE(Reason(PrivateKey::FromPem(key_ + key_).status()), std::string("BAD_PEM"));
  }

  void Damage_IsRefused() {
    std::string damaged = certificate_;
    damaged[60] = '!';
    const absl::Status status = Certificate::FromPem(damaged).status();
    QCOMPARE(Reason(status), std::string("BAD_PEM"));
    QVERIFY(Has(status, "damaged"));
    damaged = key_;
    damaged[60] = '!';
    QCOMPARE(Reason(PrivateKey::FromPem(damaged).status()), std::string("BAD_PEM"));
  }

  void Size_IsBounded() {
    QCOMPARE(Reason(Certificate::FromPem(std::string(kMaxPemBytes + 1, '\n')).status()),
             std::string("TOO_LARGE"));
    std::string many;
    for (std::size_t i = 0; i <= kMaxPemBlocks; ++i) many += certificate_;
    QCOMPARE(Reason(Certificate::ListFromPem(many).status()), std::string("BAD_PEM"));
  }

  void Key_OfOtherTools_IsTakenWhenItIsStrong() {
    const std::string sec1 = OpenSsl({"ecparam", "-name", "secp384r1", "-genkey", "-noout"});
    QVERIFY(sec1.find("EC PRIVATE KEY") != std::string::npos);
    QVERIFY(PrivateKey::FromPem(sec1).ok());
    QVERIFY(PrivateKey::FromPem(OpenSsl({"genrsa", "2048"})).ok());
    QCOMPARE(Reason(PrivateKey::FromPem(OpenSsl({"genrsa", "1024"})).status()),
             std::string("WEAK_KEY"));
    const std::string ed = OpenSsl({"genpkey", "-algorithm", "ed25519"});
    QCOMPARE(Reason(PrivateKey::FromPem(ed).status()), std::string("WEAK_KEY"));
  }

  // It must not ask for the passphrase on a terminal.
  void Key_WithAPassphrase_IsRefusedAtOnce() {
    const std::string pkcs8 =
        OpenSsl({"genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
                 "-aes-256-cbc", "-pass", "pass:x"});
    QCOMPARE(Reason(PrivateKey::FromPem(pkcs8).status()), std::string("ENCRYPTED_KEY"));
    const std::string traditional =
        OpenSsl({"genrsa", "-traditional", "-aes128", "-passout", "pass:xxxx", "2048"});
    QCOMPARE(Reason(PrivateKey::FromPem(traditional).status()), std::string("ENCRYPTED_KEY"));
  }

 private:
  std::string certificate_, key_;
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::PemTest)
#include "pem_test.moc"
