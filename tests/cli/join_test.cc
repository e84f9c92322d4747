// Tests `onepiece join` from outside, against an IdentityService over real TLS.
#include <QtTest>

#include "cluster/identity/secret_files.h"
#include "tests/fake_identity.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {
namespace {

using identity::Role;
using testing::FakeIdentity;

identity::NodeSubject Joined(const std::string& id, identity::RoleSet roles = {Role::kInstance}) {
  return {.cluster = "pirates", .id = id, .roles = roles};
}

}  // namespace

class JoinTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    fake_ = std::make_unique<FakeIdentity>(Path("nm"));
  }
  void cleanup() { fake_.reset(); }

  void Join_MakesAnIdentityAndAConfiguration() {
    const auto joined = Run(fake_->MakeJoinToken({Role::kProxy, Role::kInstance}),
                            {"--listen", "10.0.0.2:7001", "--json"});
    QVERIFY2(joined.exit_code == 0, joined.err.c_str());
    const auto own = Load();
    QVERIFY2(own.ok(), own.status().ToString().c_str());
    QVERIFY(own->subject ==
            identity::Subject(Joined("i-1", identity::RoleSet{Role::kProxy, Role::kInstance})));
    const auto document = joined.Document();
    QCOMPARE(document.value("cluster_id", ""), std::string("pirates"));
    QCOMPARE(document.value("start", ""),
             "onepiece-instance --config " + Path("data/instance.yaml"));
    const auto config = identity::ReadSecretFile(Path("data/instance.yaml"));
    QVERIFY(config.ok());
    for (const std::string& line : {std::string("node_id: i-1"), std::string("10.0.0.2:7001"),
                                    fake_->address(), Path("data")}) {
      QVERIFY2(config->find(line) != std::string::npos, config->c_str());
    }
    // The key never leaves the host.
    QCOMPARE(fake_->requests().size(), std::size_t{1});
    QVERIFY(fake_->requests()[0].find("BEGIN CERTIFICATE REQUEST") != std::string::npos);
    QVERIFY(fake_->requests()[0].find("PRIVATE KEY") == std::string::npos);
  }

  // The token is for another cluster, or somebody else answers at the address.
  void Join_ForeignCa_IsToldNothing() {
    const FakeIdentity other(Path("other"));
    const auto refused = Run(const_cast<FakeIdentity&>(other).MakeJoinToken({Role::kInstance}));
    QCOMPARE(refused.exit_code, 5);
    QVERIFY2(refused.Says("nothing was sent"), refused.err.c_str());
    QVERIFY(fake_->requests().empty());
    QVERIFY(Load().status().code() == absl::StatusCode::kNotFound);
  }

  void Join_ServerIsNoNodeManager_IsToldNothing() {
    const FakeIdentity proxy(Path("proxy"), "pirates", {Role::kProxy});
    const auto refused =
        testing::RunProgram(kProgram, Arguments(proxy.address(), TokenOf(proxy)) + Json());
    QCOMPARE(refused.exit_code, 5);
    QCOMPARE(refused.ErrorReason(), std::string("WRONG_ROLE"));
    QVERIFY(const_cast<FakeIdentity&>(proxy).requests().empty());
  }

  void Join_RefusedToken_Is5_AndSaysWhatToDo_data() {
    QTest::addColumn<QString>("reason");
    for (const char* reason : {"WRONG_TOKEN", "TOKEN_EXPIRED", "TOKEN_USED"})
      QTest::newRow(reason) << reason;
  }
  void Join_RefusedToken_Is5_AndSaysWhatToDo() {
    QFETCH(QString, reason);
    std::string token = TokenOf(*fake_);  // Nobody knows its secret.
    if (reason == "TOKEN_EXPIRED")
      token = fake_->MakeJoinToken({Role::kInstance}, 1, std::chrono::seconds(-1));
    if (reason == "TOKEN_USED") token = fake_->MakeJoinToken({Role::kInstance}, 0);
    const auto refused = Run(token, Json());
    QCOMPARE(refused.exit_code, 5);
    QCOMPARE(refused.ErrorReason(), reason.toStdString());
    QVERIFY2(refused.err.find("onepiece token create --join") != std::string::npos,
             refused.err.c_str());
    QVERIFY(!refused.Says(token));
    QVERIFY(!Load().ok());
  }

  void Join_SkewedClock_SaysSo() {
    fake_->SetAhead(std::chrono::hours(1));
    const auto refused = Run(fake_->MakeJoinToken({Role::kInstance}), Json());
    QCOMPARE(refused.exit_code, 5);
    QCOMPARE(refused.ErrorReason(), std::string("NOT_VALID_YET"));
    QVERIFY2(refused.err.find("this host's clock says") != std::string::npos, refused.err.c_str());
    QVERIFY(!QFile::exists(QString::fromStdString(Path("data/identity/node.pem"))));
  }

  void Join_AfterExpiry_KeepsTheKey() {
    fake_->Save(Path("data/identity"), "node", Joined("i-1"),
                base::SystemClock().WallNow() - 100 * identity::kDay);
    QVERIFY(!Load().ok());
    const auto key = identity::ReadKeyFile(Path("data/identity/node.key"));
    const auto joined = Run(fake_->MakeJoinToken({Role::kInstance}));
    QVERIFY2(joined.exit_code == 0, joined.err.c_str());
    const auto own = Load();
    QVERIFY2(own.ok(), own.status().ToString().c_str());
    QVERIFY(own->key.PublicKeyHash() == key->PublicKeyHash());
  }

  // As after a crash before the certificate was written: the cluster knows the request.
  void Join_Again_IsTheSameRequest() {
    const std::string token = fake_->MakeJoinToken({Role::kInstance}, 2);
    QCOMPARE(Run(token).exit_code, 0);
    QVERIFY(QFile::remove(QString::fromStdString(Path("data/identity/node.pem"))));
    QCOMPARE(Run(token).exit_code, 0);
    const auto id = [](const std::string& request) {
      return request.substr(request.find("request_id:"));
    };
    QCOMPARE(fake_->requests().size(), std::size_t{2});
    QCOMPARE(id(fake_->requests()[0]), id(fake_->requests()[1]));
    QVERIFY(id(fake_->requests()[0]).size() > 40);
  }

  void Join_OverAnotherIdentity_IsRefused() {
    fake_->Save(Path("data/identity"), "node", Joined("i-2"));
    const auto refused = Run(fake_->MakeJoinToken({Role::kInstance}), Json());
    QCOMPARE(refused.exit_code, 4);
    QCOMPARE(refused.ErrorReason(), std::string("OTHER_IDENTITY"));
    QVERIFY(fake_->requests().empty());
  }

  // The token decides what the node may be.
  void Join_RoleThatTheTokenLacks_Is5() {
    const auto refused = Run(fake_->MakeJoinToken({Role::kProxy}), Json());
    QCOMPARE(refused.exit_code, 5);
    QCOMPARE(refused.ErrorReason(), std::string("WRONG_ROLE"));
    QVERIFY(!Load().ok());
  }

  void Join_NodeManager_NamesItsGroup() {
    const std::string token = fake_->MakeJoinToken({Role::kNodeManager});
    QCOMPARE(RunAs("nodemanager", token, {}).exit_code, 2);  // --listen is missing.
    const auto joined = RunAs("nodemanager", token, {"--listen", "10.0.0.2:7000"});
    QVERIFY2(joined.exit_code == 0, joined.err.c_str());
    const auto config = identity::ReadSecretFile(Path("data/nodemanager.yaml"));
    QVERIFY2(config->find("i-1=10.0.0.2:7000") != std::string::npos, config->c_str());
    QVERIFY(joined.Says("onepiece cluster add i-1 --address 10.0.0.2:7000"));
  }

  void Join_WrongArguments_Are2_data() {
    QTest::addColumn<QString>("address");
    QTest::addColumn<QString>("token");
    const QString good = QString::fromStdString(
        identity::JoinToken::Generate(std::string(identity::kHashBytes, 'h')).Format());
    QTest::newRow("address") << "nm" << good;
    QTest::newRow("token") << "127.0.0.1:1"
                           << "OP1hunter2.hunter2";
    QTest::newRow("bearer token") << "127.0.0.1:1"
                                  << "OPB1hunter2";
  }
  void Join_WrongArguments_Are2() {
    QFETCH(QString, address);
    QFETCH(QString, token);
    const auto wrong =
        testing::RunProgram(kProgram, Arguments(address.toStdString(), token.toStdString()));
    QCOMPARE(wrong.exit_code, 2);
    QVERIFY(!wrong.Says("hunter2"));
    QVERIFY(!QFile::exists(QString::fromStdString(Path("data"))));
  }

  void Join_ReadsTheTokenFromTheInput() {
    QProcess process;
    process.start(kProgram, Arguments(fake_->address(), "-"));
    process.write((fake_->MakeJoinToken({Role::kInstance}) + "\n").c_str());
    process.closeWriteChannel();
    QVERIFY(process.waitForFinished());
    QVERIFY2(process.exitCode() == 0, process.readAllStandardError().constData());
    QVERIFY(Load().ok());
  }

 private:
  static inline const QString kProgram = ONEPIECE_BINARY_DIR "/bin/onepiece";
  static QStringList Json() { return {"--json"}; }
  /// A token for the fake's CA that it has not made.
  static std::string TokenOf(const FakeIdentity& fake) {
    return identity::JoinToken::Generate(fake.authority().certificate().PublicKeyHash()).Format();
  }
  [[nodiscard]] std::string Path(const QString& name) const {
    return temp_->filePath(name).toStdString();
  }
  [[nodiscard]] QStringList Arguments(const std::string& address, const std::string& token,
                                      const QString& role = "instance") const {
    return {"join",       QString::fromStdString(address),
            "--token",    QString::fromStdString(token),
            "--role",     role,
            "--node-id",  "i-1",
            "--data-dir", QString::fromStdString(Path("data"))};
  }
  [[nodiscard]] testing::Outcome RunAs(const QString& role, const std::string& token,
                                       const QStringList& more) const {
    return testing::RunProgram(kProgram, Arguments(fake_->address(), token, role) + more);
  }
  [[nodiscard]] testing::Outcome Run(const std::string& token, const QStringList& more = {}) const {
    return RunAs("instance", token, more);
  }
  [[nodiscard]] absl::StatusOr<identity::Identity> Load() const {
    return identity::LoadIdentity(Path("data/identity"), "node", base::SystemClock().WallNow());
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::unique_ptr<FakeIdentity> fake_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::JoinTest)
#include "join_test.moc"
