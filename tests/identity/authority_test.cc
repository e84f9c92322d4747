// Tests keys, certificate requests, and the certificates that an authority makes.
#include "cluster/identity/authority.h"

#include <QTemporaryDir>
#include <QtTest>
#include <set>

#include "cluster/base/status.h"
#include "cluster/identity/trust_bundle.h"
#include "tests/identity/sample.h"
#include "tests/program.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {
namespace {

using testing::kNow;

/// What the `openssl` command prints of a certificate, as an independent reader.
std::string OpenSslText(const Certificate& certificate) {
  const QTemporaryDir temp;
  QFile file(temp.filePath("certificate.pem"));
  if (!file.open(QIODevice::WriteOnly)) return {};
  file.write(QByteArray::fromStdString(certificate.ToPem()));
  file.close();
  return onepiece::testing::RunProgram("openssl",
                                       {"x509", "-noout", "-text", "-in", file.fileName()})
      .out;
}

}  // namespace

class AuthorityTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    authority_ = std::make_unique<Authority>(*Authority::Create("pirates", kNow));
  }

  void Key_IsReadBack_AndNeverTheSameAgain() {
    const PrivateKey key = PrivateKey::Generate();
    const auto read = PrivateKey::FromPem(key.ToPem());
    QVERIFY(read.ok());
    QCOMPARE(read->PublicKeyHash(), key.PublicKeyHash());
    QCOMPARE(key.PublicKeyHash().size(), std::size_t{32});
    QVERIFY(PrivateKey::Generate().PublicKeyHash() != key.PublicKeyHash());
  }

  void Create_MakesACaOfTenYears() {
    const Certificate& ca = authority_->certificate();
    QVERIFY(ca.IsAuthority());
    QVERIFY(ca.not_before() == kNow - kBackdate);
    QVERIFY(ca.not_after() == kNow + kAuthorityLife);
    QCOMPARE(ca.Organization(), std::string("pirates"));
    QCOMPARE(ca.PublicKeyHash(), authority_->key().PublicKeyHash());
    QCOMPARE(ca.SubjectName(),
             "O=pirates, CN=OnePiece CA " + ToHex(ca.PublicKeyHash()).substr(0, 8));
    const std::string text = OpenSslText(ca);
    QVERIFY(text.find("CA:TRUE, pathlen:0") != std::string::npos);
    QVERIFY(text.find("Certificate Sign, CRL Sign") != std::string::npos);
    QVERIFY(text.find("NIST CURVE: P-256") != std::string::npos);
    QCOMPARE(Reason(Authority::Create("pi rates", kNow).status()), std::string("BAD_SUBJECT"));
  }

  void FromPem_TakesItsOwn_AndNoOther() {
    const std::string pem = authority_->certificate().ToPem();
    QVERIFY(Authority::FromPem(pem, authority_->key().ToPem()).ok());
    QCOMPARE(Reason(Authority::FromPem(pem, PrivateKey::Generate().ToPem()).status()),
             std::string("KEY_MISMATCH"));
    const testing::Issued node = testing::Issue(*authority_, testing::Node());
    QCOMPARE(Reason(Authority::FromPem(node.certificate.ToPem(), node.key.ToPem()).status()),
             std::string("NOT_A_CA"));
  }

  void Issue_ANode_IsForBothEnds() {
    const IssueOptions options{.hosts = {"nm.example.org", "10.0.0.1", "::1"}};
    const Certificate node =
        testing::Issue(*authority_, testing::Node(), kNow, options).certificate;
    QVERIFY(*node.GetSubject() == testing::Node());
    QVERIFY(node.not_before() == kNow - std::chrono::minutes(5));
    QVERIFY(node.not_after() == kNow + 90 * kDay);
    const base::Duration life = node.not_after() - node.not_before();
    QVERIFY(node.RenewalTime() >= node.not_before() + life / 3 * 2);
    QVERIFY(node.RenewalTime() < node.not_before() + life / 3 * 2 + std::chrono::seconds(1));
    QVERIFY(!node.IsAuthority());
    QVERIFY((node.Hosts() ==
             std::vector<std::string>{kNodeDnsName, "nm.example.org", "10.0.0.1", "::1"}));
    QCOMPARE(node.IssuerName(), authority_->certificate().SubjectName());
    const std::string text = OpenSslText(node);
    QVERIFY(text.find("TLS Web Server Authentication, TLS Web Client Authentication") !=
            std::string::npos);
    QVERIFY(text.find("URI:onepiece://pirates/node/proxy-1?role=proxy") != std::string::npos);
    QVERIFY(text.find("CA:FALSE") != std::string::npos);
    QVERIFY(text.find("ecdsa-with-SHA256") != std::string::npos);
  }

  void Issue_APrincipal_IsForTheClientsEnd() {
    const Certificate client = testing::Issue(*authority_, testing::Principal()).certificate;
    QVERIFY(*client.GetSubject() == testing::Principal());
    const std::string text = OpenSslText(client);
    QVERIFY(text.find("TLS Web Client Authentication") != std::string::npos);
    QVERIFY(text.find("Server Authentication") == std::string::npos);
  }

  void Issue_SerialNumbersAreRandom() {
    const SigningRequest request = SigningRequest::Make(PrivateKey::Generate());
    std::set<std::string> serials;
    std::size_t longest = 0;
    for (int i = 0; i < 50; ++i) {
      const auto made = authority_->Issue(request, testing::Node(), kNow);
      QVERIFY(made.ok());
      longest = std::max(longest, made->SerialNumber().size());
      serials.insert(made->SerialNumber());
    }
    QCOMPARE(serials.size(), std::size_t{50});
    QCOMPARE(longest, std::size_t{32});
  }

  void Issue_EndsWithTheCa() {
    const base::WallTime late = authority_->certificate().not_after() - kDay;
    const Certificate node = testing::Issue(*authority_, testing::Node(), late).certificate;
    QVERIFY(node.not_after() == authority_->certificate().not_after());
    const SigningRequest request = SigningRequest::Make(PrivateKey::Generate());
    QCOMPARE(Reason(authority_->Issue(request, testing::Node(), late + 2 * kDay).status()),
             std::string("CERTIFICATE_EXPIRED"));
    QCOMPARE(Reason(authority_->Issue(request, testing::Node(), kNow - kDay).status()),
             std::string("NOT_VALID_YET"));
  }

  void Issue_RefusesWhatItCannotVouchFor() {
    const SigningRequest request = SigningRequest::Make(PrivateKey::Generate());
    const auto reason = [&](const Subject& subject, const IssueOptions& options) {
      return Reason(authority_->Issue(request, subject, kNow, options).status());
    };
    QCOMPARE(reason(NodeSubject{.cluster = "c", .id = "a/b", .roles = {Role::kProxy}}, {}),
             std::string("BAD_SUBJECT"));
    for (const char* host : {"", "a b", "a,URI:onepiece://x", "a\n", "a:1", "*", "é"})
      QCOMPARE(reason(testing::Node(), {.hosts = {host}}), std::string("BAD_HOST"));
    QCOMPARE(reason(testing::Node(), {.hosts = std::vector<std::string>(33, "h")}),
             std::string("BAD_HOST"));
    QCOMPARE(reason(testing::Node(), {.life = base::Duration::zero()}), std::string("BAD_LIFE"));
    QCOMPARE(reason(testing::Node(), {.life = kMaxCertificateLife + kDay}),
             std::string("BAD_LIFE"));
  }

  void Issue_TheLongestName_Fits() {
    const NodeSubject node{
        .cluster = std::string(64, 'c'), .id = std::string(128, 'n'), .roles = {Role::kProxy}};
    QVERIFY(*testing::Issue(*authority_, node).certificate.GetSubject() == Subject(node));
  }

  void Request_IsProvenByItsKey() {
    const PrivateKey key = PrivateKey::Generate();
    const SigningRequest request = SigningRequest::Make(key);
    const auto read = SigningRequest::FromPem(request.ToPem());
    QVERIFY(read.ok());
    QCOMPARE(read->PublicKeyHash(), key.PublicKeyHash());
    // Another's public key in a request that one signed oneself: each flipped byte is noticed.
    const QByteArray der = QByteArray::fromBase64(
        QByteArray::fromStdString(request.ToPem()).split('-').value(10).trimmed());
    QVERIFY(der.size() > 100);
    int unproven = 0;
    for (qsizetype i = 0; i < der.size(); ++i) {
      QByteArray damaged = der;
      damaged[i] = static_cast<char>(damaged[i] ^ 1);
      const std::string pem = "-----BEGIN CERTIFICATE REQUEST-----\n" +
                              damaged.toBase64().toStdString() +
                              "\n-----END CERTIFICATE REQUEST-----\n";
      const std::string reason = Reason(SigningRequest::FromPem(pem).status());
      QVERIFY2(reason == "NOT_ITS_KEY" || reason == "BAD_PEM" || reason == "WEAK_KEY",
               qPrintable(QString("byte %1: %2").arg(i).arg(QString::fromStdString(reason))));
      unproven += reason == "NOT_ITS_KEY" ? 1 : 0;
    }
    QVERIFY(unproven > 20);
  }

  void Renewal_KeepsTheKeysHash() {
    const PrivateKey key = PrivateKey::Generate();
    const SigningRequest request = SigningRequest::Make(key);
    const Certificate first = *authority_->Issue(request, testing::Node(), kNow);
    const Certificate second = *authority_->Issue(request, testing::Node(), kNow + 60 * kDay);
    QCOMPARE(first.PublicKeyHash(), second.PublicKeyHash());
    QVERIFY(first.Fingerprint() != second.Fingerprint());
    QVERIFY(CheckKeyIsOf(key, second).ok());
  }

 private:
  std::unique_ptr<Authority> authority_;
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::AuthorityTest)
#include "authority_test.moc"
