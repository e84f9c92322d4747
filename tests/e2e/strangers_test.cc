// What strangers get of a running cluster: another user of the host, and callers of every port that
// have no certificate, one of a foreign CA, or that of a tenant.
#include <pwd.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <span>

#include "cluster/local/control.h"
#include "cluster/local/identities.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/identities.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

namespace fs = std::filesystem;
using Credentials = std::shared_ptr<grpc::ChannelCredentials>;

/// What somebody may try at a port.
struct Attack {
  const char* name;
  std::function<absl::Status(const std::shared_ptr<grpc::Channel>&, const std::string& uid)> call;
};

template <typename Service, typename Request, typename Response>
absl::Status Try(const std::shared_ptr<grpc::Channel>& channel,
                 grpc::Status (Service::*method)(grpc::ClientContext*, const Request&, Response*),
                 const Request& request) {
  Service stub(channel);
  return rpc::Call(stub, method, request, std::chrono::seconds(5)).status();
}

std::vector<Attack> Attacks() {
  return {
      {"take the cluster's secret",
       [](const auto& channel, const std::string&) {
         v1::RegisterNodeRequest request;
         request.mutable_node()->set_node_id("proxy-9");
         request.mutable_node()->set_role(v1::PROXY);
         request.mutable_node()->set_address("127.0.0.1:1");
         request.mutable_node()->set_incarnation(1);
         return Try(channel, &v1::NodeManagerService::Stub::RegisterNode, request);
       }},
      {"read a prompt",
       [](const auto& channel, const std::string& uid) {
         v1::GetJobRecordRequest request;
         request.set_uid(uid);
         return Try(channel, &v1::DatabaseService::Stub::GetJob, request);
       }},
      {"read a prompt at a proxy",
       [](const auto& channel, const std::string& uid) {
         v1::GetJobRequest request;
         request.set_name("jobs/" + uid);
         return Try(channel, &v1::GenerationService::Stub::GetJob, request);
       }},
      {"purge all results",
       [](const auto& channel, const std::string&) {
         v1::PurgeResultsRequest request;
         request.set_all(true);
         return Try(channel, &v1::DatabaseService::Stub::PurgeResults, request);
       }},
      {"remove a NodeManager",
       [](const auto& channel, const std::string&) {
         v1::RemoveSeatRequest request;
         request.set_name("nodemanager-1");
         return Try(channel, &v1::ConsensusService::Stub::RemoveSeat, request);
       }},
      {"close a live producer's ring",
       [](const auto& channel, const std::string&) {
         v1::CloseRingRequest request;
         request.set_producer_id(1);
         request.set_incarnation(1);
         return Try(channel, &v1::RingService::Stub::CloseRing, request);
       }},
      {"read spans",
       [](const auto& channel, const std::string& uid) {
         v1::ListSpansRequest request;
         request.set_uid(uid);
         return Try(channel, &v1::TelemetryService::Stub::ListSpans, request);
       }},
  };
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address, const Credentials& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  rpc::SetTlsArguments(arguments);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

/// TLS that believes every server and shows nothing.
Credentials Anybody(const std::string& any_ca) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(any_ca));
  options.watch_root_certs();
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

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
  /// Tries the first `count` attacks at each port. `refused` says whether an answer is a refusal.
  /// Where there is no connection, one is as good as all.
  template <typename Refused>
  void Expect(const std::string& who, const Credentials& credentials, const Refused& refused,
              std::size_t count = Attacks().size()) {
    for (const std::string& address : addresses_) {
      const auto channel = Connect(address, credentials);
      const std::vector<Attack> attacks = Attacks();
      for (const Attack& attack : std::span(attacks).first(count)) {
        const absl::Status status = attack.call(channel, uid_);
        const std::string what =
            who + ": " + attack.name + " at " + address + ": " + status.ToString();
        QVERIFY2(!status.ok() && refused(status), what.c_str());
      }
    }
    QVERIFY(cluster_.EveryProcessReady());
  }

  std::string uid_;
  std::vector<std::string> addresses_;
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::StrangersTest)
#include "strangers_test.moc"
