// What strangers get of a running cluster: another user of the host, and callers of every port that
// have no certificate, one of a foreign CA, or that of a tenant.
#include <pwd.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cluster/local/control.h"
#include "cluster/local/identities.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/credentials.h"
#include "tests/e2e/attacks.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/identities.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

namespace fs = std::filesystem;
}  // namespace

class StrangersTest : public ClusterFixture {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void initTestCase() {
    QVERIFY(cluster_.Up());
    uid_ = cluster_.Submit({"--prompt", "a red circle moving right", "--steps", "1"});
    QVERIFY(!uid_.empty());
    QCOMPARE(cluster_.Watch(uid_).value("state", ""), std::string("SUCCEEDED"));
    const json status = cluster_.Status();
    for (const json& process : status["processes"])
      addresses_.push_back(process.value("address", ""));
    QVERIFY(addresses_.size() >= 9);
  }

  void Plaintext_GetsNoAnswerAtAnyPort() {
    Expect(
        "plaintext", grpc::InsecureChannelCredentials(),
        [](const absl::Status& status) {
          return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
        },
        1);
  }

  void WithoutACertificate_NothingIsAllowedAtAnyPort() {
    Expect("no certificate", Anybody(local::ReadFile(cluster_.Path("data/identity/ca.pem"))),
           [](const absl::Status& status) {
             const std::string reason = Reason(status);
             return reason == "NO_CREDENTIALS" || reason == "METHOD_UNKNOWN";
           });
  }

  void ATenantsCertificate_OpensOnlyItsOwnDoor() {
    const std::string folder = cluster_.Path("ci");
    const Outcome made = testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece",
        {"cert", "create-client", "ci", "--tenant", "films", "--scope", "submit,read-own",
         "--ca-dir", QString::fromStdString(cluster_.Path("data/identity")), "--out",
         QString::fromStdString(folder)});
    QVERIFY2(made.exit_code == 0, made.err.c_str());
    const auto credentials = rpc::MakeChannelCredentials(
        {.folder = folder, .name = "ci", .roles = {}}, base::SystemClock());
    QVERIFY2(credentials.ok(), credentials.status().ToString().c_str());
    Expect("a tenant", *credentials, [](const absl::Status& status) {
      const std::string reason = Reason(status);
      return reason == "NODES_ONLY" || reason == "MISSING_SCOPE" || reason == "JOB_UNKNOWN" ||
             reason == "METHOD_UNKNOWN";
    });
    QVERIFY(cluster_.Get(uid_).value("state", "") == "SUCCEEDED");
  }

  void ACertificateOfAForeignCa_GetsNoConnection() {
    const testing::TestAuthority foreign(local::FindCluster(cluster_.Path("data"))->cluster_id);
    const std::string folder = cluster_.Path("foreign");
    foreign.SavePrincipal(folder, "admin", {identity::Scope::kAdmin});
    const auto credentials = rpc::MakeChannelCredentials(
        {.folder = folder, .name = "admin", .roles = {}}, base::SystemClock());
    QVERIFY(credentials.ok());
    Expect(
        "a foreign CA", *credentials,
        [](const absl::Status& status) {
          return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
        },
        1);
  }

  void NoLogHasAPromptOrASecret() {
    constexpr char kPrompt[] = "a planted purple octagon";
    const std::string uid = cluster_.Submit({"--prompt", kPrompt, "--steps", "1"});
    QCOMPARE(cluster_.Watch(uid).value("state", ""), std::string("SUCCEEDED"));
    // A job that fails is spoken of more.
    const Outcome refused = cluster_.Run({"submit", "--prompt", kPrompt, "--steps", "0"});
    QVERIFY(refused.exit_code != 0);
    std::vector<std::string> planted = {kPrompt};
    for (const QStringList& arguments :
         {QStringList{"create", "--name", "planted", "--scope", "read"},
          QStringList{"create", "--join", "--role", "proxy"}}) {
      const json made =
          cluster_.Run(QStringList{"token"} + arguments + QStringList{"--json"}).Document();
      const std::string token = made.is_object() ? made.value("token", "") : "";
      QVERIFY(token.size() > 40);
      planted.push_back(token.substr(token.size() - 40));  // The secret.
    }
    for (const auto& entry : fs::directory_iterator(cluster_.Path("data/identity"))) {
      if (entry.path().extension() != ".key") continue;
      const std::string pem = local::ReadFile(entry.path().string());
      planted.push_back(pem.substr(pem.find('\n') + 1, 40));
    }
    const Outcome audit = cluster_.Run({"audit", "--json"});
    QVERIFY(audit.out.find("planted") != std::string::npos);
    int files = 0;
    const auto search = [&](const std::string& where, const std::string& text) {
      for (const std::string& secret : planted)
        QVERIFY2(text.find(secret) == std::string::npos, (secret + " is in " + where).c_str());
    };
    search("audit", audit.out);
    for (const auto& entry : fs::recursive_directory_iterator(cluster_.Path("data"))) {
      const std::string path = entry.path().string();
      if (!path.ends_with(".log") && !path.ends_with(".jsonl")) continue;
      ++files;
      search(path, local::ReadFile(path));
    }
    QVERIFY(files > 9);
  }

  void AnotherUser_ReadsNothingUnderTheDataDirectoryAndNoSharedMemory() {
    const passwd* nobody = getpwnam("nobody");
    const QString setpriv = testing::FindProgram("setpriv");
    if (geteuid() != 0 || nobody == nullptr || setpriv.isEmpty())
      QSKIP("needs root, setpriv and the user nobody");
    // The folder above hides everything; so it is opened, as one of /var/lib would be.
    const std::string above = cluster_.Path("");
    QCOMPARE(chmod(above.c_str(), 0755), 0);
    const auto as_nobody = [&](const QStringList& command) {
      return testing::RunProgram(
          setpriv,
          QStringList{"--reuid", "nobody", "--regid", "nogroup", "--clear-groups"} + command);
    };
    const QString data = QString::fromStdString(cluster_.Path("data"));
    const Outcome seen = as_nobody({"find", data, "-readable"});
    QCOMPARE(QString::fromStdString(seen.out).trimmed(), QString());
    const Outcome memory = as_nobody({"find", "/dev/shm", "-user", "root", "-type", "f", "-name",
                                      "onepiece*", "(", "-readable", "-o", "-writable", ")"});
    QCOMPARE(QString::fromStdString(memory.out).trimmed(), QString());
    // Whoever is let into the folder still finds nothing in it.
    std::string open;
    for (const auto& entry : fs::recursive_directory_iterator(data.toStdString())) {
      struct stat about {};
      if (lstat(entry.path().c_str(), &about) != 0) continue;  // A file that has just gone.
      if ((about.st_mode & 077) != 0 && !S_ISLNK(about.st_mode))
        open += entry.path().string() + "\n";
    }
    QCOMPARE(open, std::string());
    QCOMPARE(chmod(above.c_str(), 0700), 0);
  }

 private:
  /// `refused` says whether an answer is a refusal.
  template <typename Refused>
  void Expect(const std::string& who, const Credentials& credentials, const Refused& refused,
              std::size_t count = kAllAttacks) {
    for (const Tried& one : TryAttacks(addresses_, credentials, uid_, count)) {
      const std::string what = who + ": " + one.what + ": " + one.status.ToString();
      QVERIFY2(!one.status.ok() && refused(one.status), what.c_str());
    }
    QVERIFY(cluster_.EveryProcessReady());
  }

  std::string uid_;
  std::vector<std::string> addresses_;
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::StrangersTest)
#include "strangers_test.moc"
