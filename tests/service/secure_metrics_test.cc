// The metrics endpoint that others can reach: TLS 1.3 alone, and an answer only for who may read.
#include "cluster/service/secure_metrics.h"

#include <QFile>
#include <QSslConfiguration>
#include <QSslKey>
#include <QSslSocket>
#include <QtTest>

#include "cluster/identity/token.h"
#include "cluster/rpc/door.h"
#include "cluster/telemetry/metrics.h"
#include "tests/identities.h"
#include "tests/test_main.h"

namespace onepiece::service {
namespace {

using identity::Scope;

/// What a client shows.
struct Shown {
  std::string folder, name;  ///< A certificate; none when empty.
  std::string token;         ///< None when empty.
  QSsl::SslProtocol protocol = QSsl::TlsV1_3;
};

/// A node with its endpoint.
struct Node {
  Node() {
    authority.SaveNode(Path("node"), "proxy-1", {identity::Role::kProxy});
    metrics.Gauge("onepiece_sea_level_meters", "How high").Set(4);
    const auto token = identity::BearerToken::Generate();
    reader_token = token.Format();
    v1::IdentityTable table;
    table.set_epoch(1);
    v1::BearerToken& known = *table.add_bearer_tokens();
    known.set_secret_hash(identity::HashOfSecret(token.secret));
    known.set_name("prometheus");
    known.set_tenant("default");
    known.set_scopes("read");
    known.set_expires_unix_ms(
        base::ToUnixMs(base::SystemClock().WallNow() + std::chrono::hours(1)));
    door.Take(table);
    auto served = SecureMetrics::Serve("127.0.0.1:0", Path("node"), metrics, door);
    if (served.ok()) endpoint = *std::move(served);
  }
  [[nodiscard]] std::string Path(const std::string& name) const {
    return temp.path().toStdString() + "/" + name;
  }

  /// The whole answer; empty when there is no connection.
  [[nodiscard]] std::string Get(const Shown& shown, const std::string& path = "/metrics") const {
    QSslSocket socket;
    QSslConfiguration tls = QSslConfiguration::defaultConfiguration();
    tls.setProtocol(shown.protocol);
    tls.setCaCertificates(QSslCertificate::fromPath(QString::fromStdString(Path("node/ca.pem"))));
    if (!shown.folder.empty()) {
      const identity::IdentityFiles files = identity::FilesOf(shown.folder, shown.name);
      QFile key(QString::fromStdString(files.key));
      if (!key.open(QIODevice::ReadOnly)) return "no key";
      tls.setPrivateKey(QSslKey(&key, QSsl::Ec));
      tls.setLocalCertificateChain(
          QSslCertificate::fromPath(QString::fromStdString(files.certificate)));
    }
    socket.setSslConfiguration(tls);
    const std::string& at = endpoint->address();
    socket.connectToHostEncrypted("127.0.0.1",
                                  static_cast<quint16>(std::stoi(at.substr(at.rfind(':') + 1))),
                                  identity::kNodeDnsName);
    constexpr int kWaitMs = 20'000;
    if (!socket.waitForEncrypted(kWaitMs)) return "";
    std::string request = "GET " + path + " HTTP/1.0\r\nHost: x\r\n";
    if (!shown.token.empty()) request += "Authorization: Bearer " + shown.token + "\r\n";
    socket.write(QByteArray::fromStdString(request + "\r\n"));
    QByteArray answer;
    while (socket.state() == QAbstractSocket::ConnectedState && socket.waitForReadyRead(kWaitMs))
      answer += socket.readAll();
    return (answer + socket.readAll()).toStdString();
  }

  QTemporaryDir temp;
  testing::TestAuthority authority{"pirates"};
  telemetry::Metrics metrics{"proxy", "proxy-1"};
  rpc::Door door{"pirates", base::SystemClock()};
  std::string reader_token;
  std::unique_ptr<SecureMetrics> endpoint;
};

bool Refused(const std::string& answer, const std::string& code, const std::string& reason) {
  const bool refused = answer.starts_with("HTTP/1.1 " + code) &&
                       answer.find(reason + ": ") != std::string::npos &&
                       answer.find("onepiece_sea_level") == std::string::npos;
  if (!refused) qWarning("%s", answer.c_str());
  return refused;
}
bool Answered(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 200") &&
         answer.find("\nonepiece_sea_level_meters 4\n") != std::string::npos;
}

}  // namespace

class SecureMetricsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void WhoMayRead_GetsTheMetrics() {
    const Node node;
    QVERIFY(node.endpoint != nullptr);
    node.authority.SavePrincipal(node.Path("reader"), "reader", {Scope::kRead});
    QVERIFY(Answered(node.Get({.folder = node.Path("reader"), .name = "reader", .token = {}})));
    QVERIFY(Answered(
        node.Get({.folder = node.Path("node"), .name = identity::kNodeName, .token = {}})));
    QVERIFY(Answered(node.Get({.folder = {}, .name = {}, .token = node.reader_token})));
    QVERIFY(node.Get({.folder = {}, .name = {}, .token = node.reader_token}, "/other")
                .starts_with("HTTP/1.1 404"));
  }

  void Others_AreRefusedWithTheReason() {
    const Node node;
    QVERIFY(Refused(node.Get({}), "401", "NO_CREDENTIALS"));
    QVERIFY(Refused(node.Get({.folder = {}, .name = {}, .token = "guessed"}), "401", "BAD_TOKEN"));
    node.authority.SavePrincipal(node.Path("ci"), "ci", {Scope::kSubmit, Scope::kReadOwn});
    QVERIFY(Refused(node.Get({.folder = node.Path("ci"), .name = "ci", .token = {}}), "403",
                    "MISSING_SCOPE"));
  }

  void ForeignCertificates_AreRefused() {
    const Node node;
    const testing::TestAuthority foreign("pirates");
    foreign.SavePrincipal(node.Path("foreign"), "reader", {Scope::kRead});
    QVERIFY(Refused(node.Get({.folder = node.Path("foreign"), .name = "reader", .token = {}}),
                    "401", "FOREIGN_CA"));
    // One CA may sign for more than one cluster.
    QVERIFY(
        identity::MakeIdentity(
            node.Path("navy"), "reader",
            identity::PrincipalSubject{
                .cluster = "navy", .name = "reader", .tenant = "default", .scopes = {Scope::kRead}},
            node.authority.authority(), base::SystemClock().WallNow(), {})
            .ok());
    QVERIFY(Refused(node.Get({.folder = node.Path("navy"), .name = "reader", .token = {}}), "401",
                    "WRONG_CLUSTER"));
  }

  void OlderTls_GetsNoConnection() {
    const Node node;
    QCOMPARE(
        node.Get({.folder = {}, .name = {}, .token = node.reader_token, .protocol = QSsl::TlsV1_2}),
        std::string());
  }

  void ARenewedCertificate_IsShownWithoutARestart() {
    const Node node;
    QVERIFY(Answered(node.Get({.folder = {}, .name = {}, .token = node.reader_token})));
    // The client believes the CA of this file alone.
    const testing::TestAuthority next("pirates");
    next.SaveNode(node.Path("node"), "proxy-1", {identity::Role::kProxy});
    QVERIFY(Answered(node.Get({.folder = {}, .name = {}, .token = node.reader_token})));
  }

  void APortThatIsTaken_IsRefused() {
    Node node;
    const auto second =
        SecureMetrics::Serve(node.endpoint->address(), node.Path("node"), node.metrics, node.door);
    QCOMPARE(base::GetReason(second.status()).reason, std::string("CANNOT_LISTEN"));
  }
};

}  // namespace onepiece::service

ONEPIECE_TEST(onepiece::service::SecureMetricsTest)
#include "secure_metrics_test.moc"
