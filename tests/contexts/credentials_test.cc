#include "cluster/contexts/credentials.h"

#include <sys/stat.h>

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/identity/secret_files.h"
#include "cluster/rpc/channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/fake_identity.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::contexts {

class CredentialsTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    fake_ = std::make_unique<testing::FakeIdentity>(Path("node"));
    fake_->Save(Path("ann"), "ann",
                identity::PrincipalSubject{.cluster = "pirates",
                                           .name = "ann",
                                           .tenant = "films",
                                           .scopes = {identity::Scope::kReadOwn}});
  }
  void cleanup() {
    rpc::UseCredentials(nullptr);
    fake_.reset();
  }

  void Present_Identity_IsWhoThatIs() {
    QVERIFY(Present({.folder = Path("ann"), .name = "ann"}).ok());
    const auto me = WhoAmI();
    QVERIFY2(me.ok(), me.status().ToString().c_str());
    QCOMPARE(me->name(), std::string("principal/ann"));
    QCOMPARE(me->shown(), std::string("certificate"));
  }

  void Present_Token_IsWhoThatIs() {
    const auto token = identity::BearerToken::Generate();
    v1::IdentityTable table;
    table.set_epoch(1);
    v1::BearerToken* known = table.add_bearer_tokens();
    known->set_secret_hash(identity::HashOfSecret(token.secret));
    known->set_name("ci");
    known->set_tenant("films");
    known->set_scopes("read-own");
    known->set_expires_unix_ms(4'000'000'000'000);
    fake_->door().Take(table);
    // People paste tokens with a line's end.
    QVERIFY(identity::WriteSecretFile(Path("ann/token"), token.Format() + "\n").ok());
    QVERIFY(Present({.authorities = Path("ann/ca.pem"), .token_file = Path("ann/token")}).ok());
    const auto me = WhoAmI();
    QVERIFY2(me.ok(), me.status().ToString().c_str());
    QCOMPARE(me->name(), std::string("principal/ci"));
    QCOMPARE(me->shown(), std::string("token"));
    // The same token, but another cluster's CA.
    const testing::FakeIdentity other(Path("other"));
    QVERIFY(Present({.authorities = Path("other/ca.pem"), .token_file = Path("ann/token")}).ok());
    QVERIFY(absl::IsUnavailable(WhoAmI().status()));
  }

  void FindIdentity_TakesTheOnlyOne() {
    QCOMPARE(FindIdentity(Path("ann"))->name, std::string("ann"));
    QCOMPARE(Reason(FindIdentity(Path("none")).status()), std::string("NO_IDENTITY"));
    const identity::PrincipalSubject bob{.cluster = "pirates",
                                         .name = "bob",
                                         .tenant = "films",
                                         .scopes = {identity::Scope::kReadOwn}};
    fake_->Save(Path("ann"), "bob", bob);
    const absl::Status several = FindIdentity(Path("ann")).status();
    QCOMPARE(Reason(several), std::string("SEVERAL_IDENTITIES"));
    QVERIFY(base::Message(several).find("ann, bob") != std::string::npos);
    fake_->Save(Path("ann"), "admin", bob);
    QCOMPARE(FindIdentity(Path("ann"))->name, std::string("admin"));
  }

  void Present_SaysWhatIsWrong() {
    QCOMPARE(Reason(Present({.folder = Path("none")})), std::string("NO_FILE"));
    QVERIFY(identity::WriteSecretFile(Path("ann/token"), "OPB1hunter2").ok());
    const absl::Status wrong =
        Present({.authorities = Path("ann/ca.pem"), .token_file = Path("ann/token")});
    QCOMPARE(Reason(wrong), std::string("BAD_TOKEN"));
    QVERIFY(base::Message(wrong).starts_with(Path("ann/token")));
    QVERIFY(base::Message(wrong).find("hunter2") == std::string::npos);
    QCOMPARE(chmod(Path("ann/token").c_str(), 0640), 0);
    QCOMPARE(Reason(ReadToken(Path("ann/token")).status()), std::string("MODE_TOO_WIDE"));
  }

  void KeepToken_WritesAFileOfTheOwnerOnly() {
    const std::string token = identity::BearerToken::Generate().Format();
    QVERIFY(KeepToken(Path("new/folder/token"), " " + token + "\n").ok());
    QCOMPARE(ReadToken(Path("new/folder/token")).value_or(""), token);
    struct stat found {};
    QCOMPARE(stat(Path("new/folder/token").c_str(), &found), 0);
    QCOMPARE(found.st_mode & 0777, mode_t{0600});
    const absl::Status wrong = KeepToken(Path("new/folder/wrong"), "OPB1hunter2");
    QCOMPARE(Reason(wrong), std::string("BAD_TOKEN"));
    QVERIFY(base::Message(wrong).find("hunter2") == std::string::npos);
    QCOMPARE(Reason(ReadToken(Path("new/folder/wrong")).status()), std::string("NO_FILE"));
  }

 private:
  [[nodiscard]] std::string Path(const QString& name) const {
    return temp_->filePath(name).toStdString();
  }
  [[nodiscard]] absl::StatusOr<v1::WhoAmIResponse> WhoAmI() const {
    const auto stub = v1::IdentityService::NewStub(rpc::MakeChannel(fake_->address()));
    return rpc::Call(*stub, &v1::IdentityService::Stub::WhoAmI, {}, std::chrono::seconds(20));
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::unique_ptr<testing::FakeIdentity> fake_;
};

}  // namespace onepiece::contexts

ONEPIECE_TEST(onepiece::contexts::CredentialsTest)
#include "credentials_test.moc"
