// Every method × every kind of caller, over real TLS, against the table that people have written in
// docs/security.md.
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cluster/identity/token.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "cluster/rpc/tls.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "onepiece/v1/cluster_config.grpc.pb.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "onepiece/v1/elasticity.grpc.pb.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/identity.grpc.pb.h"
#include "onepiece/v1/instance.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "onepiece/v1/work.grpc.pb.h"
#include "tests/channel_with.h"
#include "tests/identities.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using identity::Role;
using identity::Scope;

constexpr char kCluster[] = "pirates";
const std::vector<Role> kRoles = {Role::kNodeManager, Role::kProxy,   Role::kInstance,
                                  Role::kDatabase,    Role::kGateway, Role::kAgent};
const std::vector<Scope> kScopes = {Scope::kSubmit,    Scope::kReadOwn, Scope::kRead,
                                    Scope::kCancelOwn, Scope::kOperate, Scope::kAdmin};

/// One row of the table.
struct Row {
  std::set<std::string> nodes, scopes;
  [[nodiscard]] bool Everybody() const { return nodes.contains("everybody"); }
};

/// "submit (request ids only), read-own" → {"submit", "read-own"}
std::set<std::string> Words(std::string_view cell) {
  std::set<std::string> words;
  for (absl::string_view part : absl::StrSplit(absl::string_view(cell.data(), cell.size()), ',')) {
    part = absl::StripAsciiWhitespace(part);
    if (!part.empty()) words.insert(std::string(part.substr(0, part.find(' '))));
  }
  return words;
}

/// The rows by "Service.Method".
std::map<std::string, Row> ReadTable() {
  QFile file(ONEPIECE_SOURCE_DIR "/docs/security.md");
  if (!file.open(QIODevice::ReadOnly)) return {};
  std::map<std::string, Row> rows;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(file.readAll().toStdString(), '\n'))) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() != 5) continue;
    const std::string name(absl::StripAsciiWhitespace(cells[1]));
    if (name.size() < 4 || name.front() != '`' || name.find("Service.") == std::string::npos)
      continue;
    rows[name.substr(1, name.size() - 2)] = {.nodes = Words(cells[2]), .scopes = Words(cells[3])};
  }
  return rows;
}

/// What a scope allows besides itself: written down here again, as docs/security.md says it.
std::set<std::string> Granted(const std::string& scope) {
  if (scope == "read") return {"read", "read-own"};
  if (scope == "operate") return {"operate", "read", "read-own", "cancel-own"};
  if (scope == "admin") return {"submit", "read-own", "read", "cancel-own", "operate", "admin"};
  return {scope};
}

bool Shares(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& word) { return b.contains(word); });
}

/// All services of the cluster in one server. None does anything: a call that passes the door is
/// told UNIMPLEMENTED.
struct AllServices {
  v1::GenerationService::Service generation;
  v1::NodeManagerService::Service node_manager;
  v1::ConfigService::Service config;
  v1::ElasticityService::Service elasticity;
  v1::ConsensusService::Service consensus;
  v1::ReplicaService::Service replica;
  v1::IdentityService::Service identity;
  v1::DatabaseService::Service database;
  v1::InstanceService::Service instance;
  v1::RingService::Service ring;
  v1::TelemetryService::Service telemetry;
  v1::WorkService::Service work;

  [[nodiscard]] std::vector<grpc::Service*> All() {
    return {&generation, &node_manager, &config,   &elasticity, &consensus, &replica,
            &identity,   &database,     &instance, &ring,       &telemetry, &work};
  }
};

/// "Service.Method" of every method that this program's protos have.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const char* name :
       {"GenerationService", "NodeManagerService", "ConfigService", "ElasticityService",
        "ConsensusService", "ReplicaService", "IdentityService", "DatabaseService",
        "InstanceService", "RingService", "TelemetryService", "WorkService"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        std::string("onepiece.v1.") + name);
    for (int i = 0; i < service->method_count(); ++i)
      methods.push_back(std::string(name) + "." + service->method(i)->name());
  }
  return methods;
}

std::string PathOf(const std::string& method) {
  const std::size_t dot = method.find('.');
  return "/onepiece.v1." + method.substr(0, dot) + "/" + method.substr(dot + 1);
}

}  // namespace

class AccessTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { RequireTls13(); }

 private Q_SLOTS:
  void initTestCase() {
    table_ = ReadTable();
    authority_.SaveNode(Folder("server"), "nm-1", {Role::kNodeManager});
    door_ = std::make_unique<Door>(kCluster, base::SystemClock());
    const auto credentials = MakeServerCredentials(
        {.folder = Folder("server"), .name = identity::kNodeName, .roles = {}},
        Clients::kAlsoWithoutCertificate, base::SystemClock());
    QVERIFY(credentials.ok());
    server_ =
        std::make_unique<Server>(ServerOptions{.credentials = *credentials, .door = door_.get()});
    for (grpc::Service* service : services_.All()) server_->AddService(*service);
    QVERIFY(server_->Start().ok());
    door_->Take(MakeTable());
  }
  void cleanupTestCase() { server_.reset(); }

  void Table_HasEveryMethodAndNoOther() {
    std::set<std::string> known, listed;
    for (const std::string& method : AllMethods()) known.insert(method);
    for (const auto& [method, row] : table_) listed.insert(method);
    QVERIFY(known.size() > 80);
    for (const std::string& method : known)
      QVERIFY2(listed.contains(method), (method + " is not in docs/security.md").c_str());
    for (const std::string& method : listed)
      QVERIFY2(known.contains(method), (method + " is in docs/security.md only").c_str());
  }

  void Nodes_MayCallWhatTheTableSays() {
    for (const Role role : kRoles) {
      const std::string word = identity::WordOf(role);
      authority_.SaveNode(Folder(word), word + "-1", {role});
      Expect(word, Credentials(word), [&](const Row& row) {
        return row.Everybody() || row.nodes.contains("any") || row.nodes.contains(word);
      });
    }
  }

  void PrincipalsWithACertificate_MayCallWhatTheTableSays() {
    for (const Scope scope : kScopes) {
      const std::string word = identity::WordOf(scope);
      authority_.SavePrincipal(Folder(word), "p", {scope}, "films");
      Expect(word, Credentials(word, "p"),
             [&](const Row& row) { return row.Everybody() || Shares(row.scopes, Granted(word)); });
    }
  }

  void PrincipalsWithAToken_MayCallWhatTheTableSays() {
    for (const Scope scope : kScopes) {
      const std::string word = identity::WordOf(scope);
      Expect(word, Token(tokens_.at(word)),
             [&](const Row& row) { return row.Everybody() || Shares(row.scopes, Granted(word)); });
    }
  }

  void WhoShowsNothing_MayCallWhatIsForEverybody() {
    Expect("nothing", Token(""), [](const Row& row) { return row.Everybody(); });
  }

  void BadCredentials_GetNowhere() {
    // The first three end at the door, so Join() too is closed to them: a caller that shows
    // something bad is not taken for one that shows nothing.
    for (const char* bad : {"expired token", "unknown token", "half a token"})
      Expect(bad, Token(tokens_.at(bad)), [](const Row&) { return false; });
    authority_.SavePrincipal(Folder("revoked"), "p", {Scope::kAdmin});
    v1::IdentityTable table = MakeTable();
    table.set_epoch(2);
    table.add_revoked_serials(SerialIn("revoked", "p"));
    door_->Take(table);
    Expect("revoked", Credentials("revoked", "p"), [](const Row&) { return false; });
  }

  void BadConnections_GetNowhere() {
    // tls_test.cc has more of them: expired, another cluster's, a wrong role, TLS 1.2.
    const testing::TestAuthority foreign(kCluster);
    foreign.SavePrincipal(Folder("foreign"), "p", {Scope::kAdmin});
    ExpectNoConnection("foreign CA", Credentials("foreign", "p"));
    ExpectNoConnection("plaintext", grpc::InsecureChannelCredentials());
  }

  void AServerWithAMethodThatSaysNothing_DoesNotStart() {
    // gRPC's own test services are not linked, so the rules are asked directly.
    const auto unknown = AccessRules::Of({"onepiece.v1.NoSuchService"});
    QCOMPARE(Reason(unknown.status()), std::string("NO_ACCESS_RULE"));
  }

 private:
  std::string Folder(const std::string& name) const {
    return temp_.path().toStdString() + "/" + name;
  }
  static v1::BearerToken Record(const std::string& secret, const std::string& scopes,
                                base::Duration left) {
    v1::BearerToken token;
    token.set_secret_hash(identity::HashOfSecret(secret));
    token.set_name("ci");
    token.set_tenant("films");
    token.set_scopes(scopes);
    token.set_expires_unix_ms(base::ToUnixMs(base::SystemClock().WallNow() + left));
    return token;
  }
  v1::IdentityTable MakeTable() {
    v1::IdentityTable table;
    table.set_epoch(1);
    const auto add = [&](const std::string& name, const std::string& scopes, base::Duration left) {
      const auto token = identity::BearerToken::Generate();
      tokens_[name] = token.Format();
      *table.add_bearer_tokens() = Record(token.secret, scopes, left);
    };
    for (const Scope scope : kScopes)
      add(identity::WordOf(scope), identity::WordOf(scope), std::chrono::hours(1));
    add("expired token", "admin", -std::chrono::seconds(1));
    tokens_["unknown token"] = identity::BearerToken::Generate().Format();
    tokens_["half a token"] = tokens_["admin"].substr(0, 20);
    return table;
  }
  std::string SerialIn(const std::string& folder, const std::string& name) const {
    return identity::ReadCertificateFile(Folder(folder) + "/" + name + ".pem")->SerialNumber();
  }
  std::shared_ptr<grpc::ChannelCredentials> Credentials(
      const std::string& folder, const std::string& name = identity::kNodeName) const {
    const auto made = MakeChannelCredentials({.folder = Folder(folder), .name = name, .roles = {}},
                                             base::SystemClock());
    return made.ok() ? *made : nullptr;
  }
  /// TLS with the cluster's CA and no certificate; the token goes into each call as it is.
  std::shared_ptr<grpc::ChannelCredentials> Token(const std::string& text) const {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            authority_.authority().certificate().ToPem()));
    options.watch_root_certs();
    options.set_verify_server_certs(true);
    options.set_check_call_host(false);
    auto plain = grpc::experimental::TlsCredentials(options);
    if (text.empty()) return plain;
    return grpc::CompositeChannelCredentials(plain, grpc::AccessTokenCredentials(text));
  }
  absl::Status Call(grpc::GenericStub& stub, const std::string& method) const {
    grpc::ClientContext context;
    SetTimeout(context, std::chrono::seconds(20));
    grpc::CompletionQueue queue;
    const grpc::Slice nothing;
    const grpc::ByteBuffer request(&nothing, 1);
    grpc::ByteBuffer response;
    grpc::Status status;
    auto call = stub.PrepareUnaryCall(&context, PathOf(method), request, &queue);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return FromGrpc(status);
  }
  std::shared_ptr<grpc::Channel> Connect(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    return testing::ChannelWith(server_->address(), credentials);
  }
  template <typename Allowed>
  void Expect(const std::string& who, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
              const Allowed& allowed) {
    QVERIFY2(credentials != nullptr, who.c_str());
    grpc::GenericStub stub(Connect(credentials));
    for (const std::string& method : AllMethods()) {
      const absl::Status status = Call(stub, method);
      const bool passed = absl::IsUnimplemented(status) && Reason(status).empty();
      const bool refused = absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
      const std::string what = who + " calls " + method + ": " + status.ToString();
      QVERIFY2(passed != refused, what.c_str());
      QVERIFY2(passed == allowed(table_[method]), what.c_str());
      QVERIFY2(passed || !Reason(status).empty(), what.c_str());
    }
  }
  void ExpectNoConnection(const std::string& who,
                          const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    QVERIFY2(credentials != nullptr, who.c_str());
    grpc::GenericStub stub(Connect(credentials));
    for (const char* method : {"IdentityService.Join", "GenerationService.SubmitJob"}) {
      const absl::Status status = Call(stub, method);
      QVERIFY2(absl::IsUnavailable(status), (who + ": " + status.ToString()).c_str());
    }
  }

  const QTemporaryDir temp_;
  const testing::TestAuthority authority_{kCluster};
  std::map<std::string, Row> table_;
  std::map<std::string, std::string> tokens_;
  AllServices services_;
  std::unique_ptr<Door> door_;
  std::unique_ptr<Server> server_;
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::AccessTest)
#include "access_test.moc"
