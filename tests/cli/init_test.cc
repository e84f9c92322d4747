// Tests `onepiece init` from outside: what a new cluster begins with.
#include <sys/stat.h>

#include <QtTest>
#include <fstream>
#include <sstream>

#include "cluster/base/clock.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/seal.h"
#include "cluster/identity/token.h"
#include "google/protobuf/util/json_util.h"
#include "onepiece/v1/identity.pb.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

std::string InitFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

class InitTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    top_ = temp_->filePath("data").toStdString();
  }

  void Init_MakesIdentitiesThatAreGood() {
    const auto made = Run({"--listen", "10.0.0.1:7000", "--json"});
    QVERIFY2(made.exit_code == 0, made.err.c_str());
    const base::WallTime now = base::SystemClock().WallNow();
    const auto node = identity::LoadIdentity(top_ + "/nodemanager-1/identity", "node", now);
    QVERIFY2(node.ok(), node.status().ToString().c_str());
    QCOMPARE(identity::Describe(node->subject),
             std::string("node nodemanager-1 (nodemanager) of cluster pirates"));
    const auto admin = identity::LoadIdentity(top_ + "/identity", "admin", now);
    QVERIFY2(admin.ok(), admin.status().ToString().c_str());
    QCOMPARE(identity::Describe(admin->subject),
             std::string("principal admin (admin) of tenant default in cluster pirates"));
    // One CA for both, whose key only the NodeManager has.
    QVERIFY(identity::LoadAuthority(top_ + "/nodemanager-1/identity").ok());
    QVERIFY(node->authorities.ToPem() == admin->authorities.ToPem());
    QVERIFY(!QFile::exists(QString::fromStdString(top_ + "/identity/ca.key")));
    QVERIFY(identity::ReadSealKeyFile(top_ + "/nodemanager-1/identity").ok());
    QCOMPARE(made.Document()["tls"]["key"].get<std::string>(), top_ + "/identity/admin.key");
  }

  void Init_TokenIsOfTheCa_AndOnlyItsHashIsKept() {
    const auto made =
        Run({"--listen", "10.0.0.1:7000", "--role", "instance", "--uses", "2", "--json"});
    const auto document = made.Document();
    const auto token = identity::JoinToken::Parse(document.value("token", ""));
    QVERIFY(token.ok());
    const auto authority = identity::LoadAuthority(top_ + "/nodemanager-1/identity");
    QVERIFY(token->ca_hash == authority->certificate().PublicKeyHash());
    QCOMPARE(document.value("join", ""),
             "onepiece join 10.0.0.1:7000 --token " + document.value("token", ""));
    const std::string kept = InitFile(top_ + "/nodemanager-1/identity/join-token.json");
    v1::JoinToken record;
    QVERIFY(google::protobuf::util::JsonStringToMessage(kept, &record).ok());
    QVERIFY(identity::SecretMatches(token->secret, record.secret_hash()));
    QCOMPARE(record.roles(), std::string("instance"));
    QCOMPARE(record.uses_left(), 2u);
    QCOMPARE(record.expires_unix_ms() - record.created_unix_ms(), std::int64_t{3'600'000});
    QCOMPARE(document.value("token_expires_unix_ms", std::int64_t{0}), record.expires_unix_ms());
  }

  void Init_WritesNothingThatOthersRead() {
    QCOMPARE(Run({}).exit_code, 0);
    int files = 0;
    for (QDirIterator all(QString::fromStdString(top_), QDir::AllEntries | QDir::NoDotAndDotDot,
                          QDirIterator::Subdirectories);
         all.hasNext(); ++files) {
      struct stat about {};
      const std::string path = all.next().toStdString();
      QCOMPARE(stat(path.c_str(), &about), 0);
      QVERIFY2((about.st_mode & 077) == 0, path.c_str());
    }
    QVERIFY(files >= 12);
  }

  void Init_WritesTheNodeManagersFile() {
    const auto made = Run({"--listen", "0.0.0.0:7000", "--advertise", "nm.example.org:7000"});
    QCOMPARE(made.exit_code, 0);
    const std::string file = InitFile(top_ + "/nodemanager.yaml");
    for (const std::string line : {"cluster_id: pirates", "node_id: nodemanager-1",
                                   "advertise: \"nm.example.org:7000\"", "nodemanager-1\""}) {
      QVERIFY2(file.find(line) != std::string::npos, file.c_str());
    }
    QVERIFY(made.Says("onepiece-nodemanager --config " + top_ + "/nodemanager.yaml\n"));
    QVERIFY(made.Says("onepiece join nm.example.org:7000 --token OP1"));
    QVERIFY(made.Says("onepiece context add pirates --nodemanager nm.example.org:7000"));
  }

  void Init_Twice_IsRefused() {
    QCOMPARE(Run({}).exit_code, 0);
    const std::string before = InitFile(top_ + "/nodemanager-1/identity/ca.pem");
    const auto again = Run({"--json"});
    QCOMPARE(again.exit_code, 4);
    QCOMPARE(again.ErrorReason(), std::string("CLUSTER_EXISTS"));
    QCOMPARE(InitFile(top_ + "/nodemanager-1/identity/ca.pem"), before);
  }

  void Init_WrongArguments_MakeNothing_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::newRow("port") << QStringList{"--listen", "10.0.0.1:0"};
    QTest::newRow("no port") << QStringList{"--listen", "10.0.0.1"};
    QTest::newRow("everywhere") << QStringList{"--listen", "0.0.0.0:7000"};
    QTest::newRow("role") << QStringList{"--role", "cook"};
    QTest::newRow("span") << QStringList{"--expires", "0"};
    QTest::newRow("uses") << QStringList{"--uses", "0"};
  }
  void Init_WrongArguments_MakeNothing() {
    QFETCH(QStringList, arguments);
    QCOMPARE(Run(arguments).exit_code, 2);
    QVERIFY(!QFile::exists(QString::fromStdString(top_)));
  }

 private:
  testing::Outcome Run(const QStringList& arguments) const {
    return testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece",
        QStringList{"init", "pirates", "--data-dir", QString::fromStdString(top_)} + arguments);
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::string top_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::InitTest)
#include "init_test.moc"
