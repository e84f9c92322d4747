// Tests the verb cert from outside: it works on files alone.
#include <sys/stat.h>
#include <unistd.h>

#include <QtTest>

#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using testing::Outcome;

}  // namespace

class CertTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    QCOMPARE(Cert({"create-ca", "pirates", "--ca-dir", Path("ca")}).exit_code, 0);
  }

  void Help_NamesEveryVerb_AndUsageIs2() {
    const Outcome help = Cert({"--help"});
    QCOMPARE(help.exit_code, 0);
    for (const char* verb : {"create-ca", "create-node", "create-client", "show", "verify", "list",
                             "renew", "revoke", "rotate", "authority"})
      QVERIFY2(help.Says(std::string("  ") + verb + " "), verb);
    for (const QStringList& arguments : {QStringList{},
                                         {"create-node"},
                                         {"create-node", "n", "--role", "proxy"},
                                         {"show"},
                                         {"create-ca"},
                                         {"renew"},
                                         Node("n", {"--days", "0"}),
                                         Node("n", {"--days", "1000"})}) {
      const Outcome wrong = Cert(arguments);
      QCOMPARE(wrong.exit_code, 2);
      QVERIFY(wrong.out.empty());
    }
  }

  void CreateNode_MakesAnIdentityThatVerifies() {
    const Outcome made = Cert(Node("nm-1", {"--host", "nm.example.org", "--json"}));
    QCOMPARE(made.exit_code, 0);
    const auto document = made.Document();
    QCOMPARE(document.value("subject", ""),
             std::string("onepiece://pirates/node/nm-1?role=nodemanager&role=proxy"));
    QCOMPARE(document.value("kind", ""), std::string("node"));
    QCOMPARE(document["roles"].size(), std::size_t{2});
    QCOMPARE(document["hosts"][1].get<std::string>(), std::string("nm.example.org"));
    QCOMPARE(document.value("state", ""), std::string("valid"));
    for (const char* name : {"node.pem", "node.key", "ca.pem"}) {
      struct stat about {};
      QCOMPARE(stat(qPrintable(Path("out/") + name), &about), 0);
      QCOMPARE(about.st_mode & 07777, mode_t{0600});
    }
    const Outcome good = Cert({"verify", Path("out/node.pem"), "--key", Path("out/node.key"),
                               "--cluster", "pirates", "--role", "proxy", "--json"});
    QCOMPARE(good.exit_code, 0);
    QVERIFY(good.Document().value("ok", false));
    // openssl agrees.
    QVERIFY(testing::RunProgram("openssl", {"verify", "-purpose", "sslserver", "-CAfile",
                                            Path("ca/ca.pem"), Path("out/node.pem")})
                .Says("OK"));
  }

  void CreateNode_Again_RenewsWithTheSameKey() {
    const auto first = Cert(Node("nm-1", {"--json"})).Document();
    const auto second = Cert(Node("nm-1", {"--json", "--days", "10"})).Document();
    QCOMPARE(first["public_key_sha256"], second["public_key_sha256"]);
    QVERIFY(first["sha256"] != second["sha256"]);
    const Outcome other = Cert(Node("nm-2", {"--json"}));
    QCOMPARE(other.exit_code, 4);
    QCOMPARE(other.ErrorReason(), std::string("OTHER_IDENTITY"));
  }

  void CreateClient_IsNamedAfterItsPrincipal() {
    const Outcome made = Client("ci@example.org", "read-own,submit", {"--json"});
    QCOMPARE(made.exit_code, 0);
    QCOMPARE(made.Document().value("subject", ""),
             std::string("onepiece://pirates/principal/ci@example.org?tenant=films&scope=submit&"
                         "scope=read-own"));
    QVERIFY(QFile::exists(Path("out/ci@example.org.key")));
    QCOMPARE(Cert({"verify", Path("out/ci@example.org.pem")}).exit_code, 0);
    QCOMPARE(Cert({"verify", Path("out/ci@example.org.pem"), "--role", "proxy"}).exit_code, 5);
    QCOMPARE(Client("../evil", "submit", {}).exit_code, 2);
    QCOMPARE(Client("ca", "submit", {"--json"}).ErrorReason(), std::string("RESERVED_NAME"));
    const Outcome scope = Client("ci", "write", {});
    QCOMPARE(scope.exit_code, 2);
    QVERIFY(scope.Says("cancel-own"));
  }

  void Show_TellsWhoseItIs() {
    QCOMPARE(Cert(Node("nm-1", {})).exit_code, 0);
    const Outcome shown = Cert({"show", Path("out/node.pem"), Path("ca/ca.pem"), "--json"});
    QCOMPARE(shown.exit_code, 0);
    const auto certificates = shown.Document()["certificates"];
    QCOMPARE(certificates.size(), std::size_t{2});
    QCOMPARE(certificates[0].value("node", ""), std::string("nm-1"));
    QCOMPARE(certificates[1].value("kind", ""), std::string("ca"));
    QCOMPARE(certificates[1].value("cluster", ""), std::string("pirates"));
    QCOMPARE(certificates[0]["issuer"], certificates[1]["name"]);
    QVERIFY(Cert({"show", Path("out/node.pem")}).Says("node nm-1 (nodemanager,proxy) of cluster"));
    QCOMPARE(Cert({"show", Path("nothing")}).exit_code, 3);
    QCOMPARE(Cert({"show", Path("out/node.key"), "--json"}).ErrorReason(), std::string("BAD_PEM"));
    QVERIFY(!Cert({"show", Path("out/node.key")}).Says("MIGH"));
  }

  void Verify_ForeignCa_Is5() {
    QCOMPARE(Cert({"create-ca", "pirates", "--ca-dir", Path("other")}).exit_code, 0);
    QCOMPARE(Cert(Node("nm-1", {})).exit_code, 0);
    const Outcome foreign =
        Cert({"verify", Path("out/node.pem"), "--ca", Path("other/ca.pem"), "--json"});
    QCOMPARE(foreign.exit_code, 5);
    QCOMPARE(foreign.ErrorReason(), std::string("FOREIGN_CA"));
    const Outcome key =
        Cert({"verify", Path("out/node.pem"), "--key", Path("other/ca.key"), "--json"});
    QCOMPARE(key.exit_code, 4);
    QCOMPARE(key.ErrorReason(), std::string("KEY_MISMATCH"));
    QCOMPARE(Cert({"verify", Path("out/node.pem"), "--cluster", "marines"}).exit_code, 5);
  }

  void CaKey_WithWideMode_IsRefusedWithTheCommand() {
    QCOMPARE(chmod(qPrintable(Path("ca/ca.key")), 0644), 0);
    const Outcome refused = Cert(Node("nm-1", {}));
    QCOMPARE(refused.exit_code, 4);
    QVERIFY2(refused.Says("chmod 600 " + Path("ca/ca.key").toStdString()), refused.err.c_str());
    QVERIFY(!QFile::exists(Path("out")));
  }

  void CreateCa_NeverReplacesOne() {
    const Outcome again = Cert({"create-ca", "pirates", "--ca-dir", Path("ca"), "--json"});
    QCOMPARE(again.exit_code, 4);
    QCOMPARE(again.ErrorReason(), std::string("CA_EXISTS"));
    QCOMPARE(Cert({"create-ca", "pi/rates", "--ca-dir", Path("new")}).exit_code, 2);
    // By default it lies in the data directory.
    QCOMPARE(Cert({"create-ca", "pirates", "--data-dir", Path("data")}).exit_code, 0);
    QVERIFY(QFile::exists(Path("data/identity/ca.key")));
  }

 private:
  QString Path(const QString& name) const { return temp_->filePath(name); }
  static Outcome Cert(const QStringList& arguments) {
    return testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece",
                               QStringList{"cert"} + arguments);
  }
  QStringList Node(const QString& id, const QStringList& more) const {
    return QStringList{"create-node", id,         "--role", "proxy,nodemanager",
                       "--ca-dir",    Path("ca"), "--out",  Path("out")} +
           more;
  }
  Outcome Client(const QString& name, const QString& scopes, const QStringList& more) const {
    return Cert(QStringList{"create-client", name, "--tenant", "films", "--scope", scopes,
                            "--ca-dir", Path("ca"), "--out", Path("out")} +
                more);
  }

  std::unique_ptr<QTemporaryDir> temp_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::CertTest)
#include "cert_test.moc"
