#include "cluster/identity/trust_bundle.h"

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/base/status.h"
#include "tests/identity/sample.h"
#include "tests/program.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {
namespace {

using testing::Issued;
using testing::kNow;

bool Tells(const absl::Status& status, const std::string& text) {
  return base::Message(status).find(text) != std::string::npos;
}

}  // namespace

class TrustBundleTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    authority_ = std::make_unique<Authority>(*Authority::Create("pirates", kNow));
    bundle_ = std::make_unique<TrustBundle>(authority_->certificate());
  }

  void Verify_SaysWhoItIs() {
    const Certificate node = testing::Issue(*authority_, testing::Node()).certificate;
    QVERIFY(*bundle_->Verify(node, Purpose::kServer, kNow) == testing::Node());
    QVERIFY(*bundle_->Verify(node, Purpose::kClient, kNow) == testing::Node());
    const Certificate client = testing::Issue(*authority_, testing::Principal()).certificate;
    QVERIFY(*bundle_->Verify(client, Purpose::kClient, kNow) == testing::Principal());
    QCOMPARE(Reason(bundle_->Verify(client, Purpose::kServer, kNow).status()),
             std::string("WRONG_PURPOSE"));
  }

  void Verify_ForeignCa() {
    // Even one that gives itself the same name, for the same cluster.
    const Authority other = *Authority::Create("pirates", kNow);
    const Certificate node = testing::Issue(other, testing::Node()).certificate;
    const absl::Status refused = bundle_->Verify(node, Purpose::kServer, kNow).status();
    QCOMPARE(Reason(refused), std::string("FOREIGN_CA"));
    QVERIFY(Tells(refused, other.certificate().SubjectName()));
    QVERIFY(Tells(refused, authority_->certificate().SubjectName()));
    QCOMPARE(Reason(bundle_->Verify(other.certificate(), Purpose::kServer, kNow).status()),
             std::string("FOREIGN_CA"));
  }

  void Verify_TheCaItself_IsNobody() {
    const auto refused = bundle_->Verify(authority_->certificate(), Purpose::kServer, kNow);
    QCOMPARE(Reason(refused.status()), std::string("WRONG_PURPOSE"));
  }

  void Verify_Expired_NamesTheDateAndTheCommand() {
    const Certificate node = testing::Issue(*authority_, testing::Node()).certificate;
    QVERIFY(bundle_->Verify(node, Purpose::kServer, node.not_after()).ok());
    const absl::Status refused =
        bundle_->Verify(node, Purpose::kServer, node.not_after() + std::chrono::seconds(1))
            .status();
    QCOMPARE(Reason(refused), std::string("CERTIFICATE_EXPIRED"));
    QVERIFY2(Tells(refused, "expired on 2027-02-24T00:00:00Z"), base::Message(refused).c_str());
    QVERIFY(Tells(refused, "onepiece cert create-node proxy-1 --role proxy"));
    const Certificate client = testing::Issue(*authority_, testing::Principal()).certificate;
    QVERIFY(Tells(bundle_->Verify(client, Purpose::kClient, kNow + 100 * kDay).status(),
                  "onepiece cert create-client ci --tenant films --scope submit,read-own"));
  }

  void Verify_ExpiredCa_IsNamed() {
    const base::WallTime late = kNow + kAuthorityLife;
    const Certificate node = testing::Issue(*authority_, testing::Node(), late).certificate;
    const absl::Status refused = bundle_->Verify(node, Purpose::kServer, late + kDay).status();
    QCOMPARE(Reason(refused), std::string("CERTIFICATE_EXPIRED"));
  }

  // A host whose clock is some minutes behind takes a certificate that was made just now.
  void Verify_SkewedClocks() {
    const Certificate node = testing::Issue(*authority_, testing::Node()).certificate;
    QVERIFY(bundle_->Verify(node, Purpose::kServer, kNow - std::chrono::minutes(5)).ok());
    const absl::Status refused =
        bundle_->Verify(node, Purpose::kServer, kNow - std::chrono::minutes(6)).status();
    QCOMPARE(Reason(refused), std::string("NOT_VALID_YET"));
    QVERIFY(Tells(refused, "set this host's clock"));
  }

  void Verify_EveryDamagedByte_IsRefused() {
    const QByteArray pem =
        QByteArray::fromStdString(testing::Issue(*authority_, testing::Node()).certificate.ToPem());
    const QByteArray der = QByteArray::fromBase64(pem.split('-').value(10).trimmed());
    QVERIFY(der.size() > 300);
    for (qsizetype i = 0; i < der.size(); ++i) {
      QByteArray damaged = der;
      damaged[i] = static_cast<char>(damaged[i] ^ 1);
      const auto read =
          Certificate::FromPem("-----BEGIN CERTIFICATE-----\n" + damaged.toBase64().toStdString() +
                               "\n-----END CERTIFICATE-----\n");
      QVERIFY2(!read.ok() || !bundle_->Verify(*read, Purpose::kServer, kNow).ok(),
               qPrintable(QString("byte %1").arg(i)));
    }
  }

  // What a CA signed, but not for us: a certificate of another tool, with and without our URI.
  void Verify_OtherCertificatesOfTheCa_AreNobody_data() {
    QTest::addColumn<QString>("extensions");
    QTest::addColumn<QString>("reason");
    const QString uri = "subjectAltName=URI:onepiece://pirates/node/n?role=proxy";
    QTest::newRow("no URI") << "extendedKeyUsage=serverAuth\nsubjectAltName=DNS:n"
                            << "NO_SUBJECT";
    QTest::newRow("two URIs") << "extendedKeyUsage=serverAuth\n" + uri +
                                     ",URI:onepiece://pirates/node/m?role=proxy"
                              << "NO_SUBJECT";
    QTest::newRow("bad URI") << "extendedKeyUsage=serverAuth\n" + uri + "x"
                             << "BAD_ROLE";
    QTest::newRow("no purpose") << uri << "WRONG_PURPOSE";
    QTest::newRow("a CA") << "extendedKeyUsage=serverAuth\nbasicConstraints=CA:TRUE\n" + uri
                          << "WRONG_PURPOSE";
    QTest::newRow("good") << "extendedKeyUsage=serverAuth\n" + uri << "";
  }
  void Verify_OtherCertificatesOfTheCa_AreNobody() {
    QFETCH(QString, extensions);
    QFETCH(QString, reason);
    const QTemporaryDir temp;
    const auto write = [&](const QString& name, const std::string& text) {
      QFile file(temp.filePath(name));
      QVERIFY(file.open(QIODevice::WriteOnly));
      file.write(QByteArray::fromStdString(text));
    };
    write("ca.pem", authority_->certificate().ToPem());
    write("ca.key", authority_->key().ToPem());
    write("request.pem", SigningRequest::Make(PrivateKey::Generate()).ToPem());
    write("extensions", extensions.toStdString());
    const auto made = onepiece::testing::RunProgram(
        "openssl", {"x509", "-req", "-days", "20000", "-in", temp.filePath("request.pem"), "-CA",
                    temp.filePath("ca.pem"), "-CAkey", temp.filePath("ca.key"), "-extfile",
                    temp.filePath("extensions")});
    const auto certificate = Certificate::FromPem(made.out);
    QVERIFY2(certificate.ok(), made.err.c_str());
    // The command reads the system's clock, so its certificate begins now.
    const auto verified = bundle_->Verify(
        *certificate, Purpose::kServer,
        std::max(certificate->not_before(), authority_->certificate().not_before()));
    QCOMPARE(QString::fromStdString(Reason(verified.status())), reason);
  }

  void Rotation_BelievesBoth_ThenTheNewOne() {
    const Authority next = *Authority::Create("pirates", kNow);
    const Certificate before = testing::Issue(*authority_, testing::Node()).certificate;
    const Certificate after = testing::Issue(next, testing::Node()).certificate;
    TrustBundle both(authority_->certificate());
    QVERIFY(both.Add(next.certificate()).ok());
    QVERIFY(both.Add(next.certificate()).ok());
    QCOMPARE(both.authorities().size(), std::size_t{2});
    const auto read = TrustBundle::FromPem(both.ToPem());
    QVERIFY(read.ok());
    for (const Certificate& certificate : {before, after})
      QVERIFY(read->Verify(certificate, Purpose::kServer, kNow).ok());
    QVERIFY(read->Has(next.certificate().PublicKeyHash()));
    QVERIFY(!bundle_->Has(next.certificate().PublicKeyHash()));
    const TrustBundle only_next(next.certificate());
    QCOMPARE(Reason(only_next.Verify(before, Purpose::kServer, kNow).status()),
             std::string("FOREIGN_CA"));
  }

  void Bundle_HoldsCasOnly_AndAFew() {
    const Certificate node = testing::Issue(*authority_, testing::Node()).certificate;
    QCOMPARE(Reason(TrustBundle::FromPem(node.ToPem()).status()), std::string("NOT_A_CA"));
    TrustBundle many(authority_->certificate());
    while (many.authorities().size() < TrustBundle::kMaxAuthorities)
      QVERIFY(many.Add(Authority::Create("pirates", kNow)->certificate()).ok());
    QCOMPARE(Reason(many.Add(Authority::Create("pirates", kNow)->certificate())),
             std::string("TOO_MANY"));
  }

  void Checks_OfClusterAndRole() {
    QVERIFY(CheckCluster(testing::Node(), "pirates").ok());
    QCOMPARE(Reason(CheckCluster(testing::Node(), "marines")), std::string("WRONG_CLUSTER"));
    QCOMPARE(Reason(CheckCluster(testing::Node("pirates2"), "pirates")),
             std::string("WRONG_CLUSTER"));
    QVERIFY(CheckRole(testing::Node(), {Role::kProxy, Role::kAgent}).ok());
    QCOMPARE(Reason(CheckRole(testing::Node(), {Role::kNodeManager})), std::string("WRONG_ROLE"));
    QCOMPARE(Reason(CheckRole(testing::Principal("pirates", {Scope::kAdmin}), {Role::kProxy})),
             std::string("WRONG_ROLE"));
  }

 private:
  std::unique_ptr<Authority> authority_;
  std::unique_ptr<TrustBundle> bundle_;
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::TrustBundleTest)
#include "trust_bundle_test.moc"
