#include "cluster/rpc/tls.h"

#include <sys/stat.h>

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "tests/channel_with.h"
#include "tests/eventually.h"
#include "tests/program.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

using identity::Authority;
using identity::Role;
using identity::Subject;
using identity::TrustBundle;

/// Answers with who called.
class WhoAmI final : public v1::TelemetryService::Service {
  grpc::Status ListSpans(grpc::ServerContext* context, const v1::ListSpansRequest*,
                         v1::ListSpansResponse* response) override {
    const auto peer = PeerOf(*context->auth_context());
    response->add_spans()->set_uid(peer.ok() ? identity::Describe(*peer) : Reason(peer.status()));
    return grpc::Status::OK;
  }
};

Subject TlsNode(const std::string& id, identity::RoleSet roles,
                const std::string& cluster = "pirates") {
  return identity::NodeSubject{.cluster = cluster, .id = id, .roles = roles};
}

Subject TlsPrincipal(const std::string& cluster = "pirates") {
  return identity::PrincipalSubject{
      .cluster = cluster, .name = "ci", .tenant = "t", .scopes = {identity::Scope::kRead}};
}

base::WallTime TlsNow() { return base::SystemClock().WallNow(); }

/// What a client got: who the server took it for, or why there was no answer.
struct Answer {
  absl::Status status;
  std::string me;
  std::string server_certificate;  ///< PEM.
  [[nodiscard]] bool Refused() const { return absl::IsUnavailable(status); }
  [[nodiscard]] std::string Text() const { return status.ToString() + me; }
};

/// Calls the server once, over a new connection.
Answer Ask(const std::string& address,
           const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  const auto stub = v1::TelemetryService::NewStub(testing::ChannelWith(address, credentials));
  grpc::ClientContext context;
  SetTimeout(context, std::chrono::seconds(20));
  v1::ListSpansResponse response;
  Answer answer;
  answer.status = FromGrpc(stub->ListSpans(&context, {}, &response));
  if (!answer.status.ok()) return answer;
  answer.me = response.spans(0).uid();
  const auto pem = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (!pem.empty()) answer.server_certificate = std::string(pem[0].data(), pem[0].size());
  return answer;
}

}  // namespace

class TlsTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { RequireTls13(); }

 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    authority_ = std::make_unique<Authority>(*Authority::Create("pirates", TlsNow()));
    Save("server", *authority_, TlsNode("proxy-1", {Role::kProxy}));
    Save("client", *authority_, TlsNode("nm-1", {Role::kNodeManager}));
  }
  void cleanup() { server_.reset(); }

  void Nodes_KnowEachOther() {
    const std::string address = Serve(Clients::kNodes);
    const Answer answer = Ask(address, Credentials("client"));
    QVERIFY2(answer.status.ok(), answer.Text().c_str());
    QCOMPARE(answer.me, std::string("node nm-1 (nodemanager) of cluster pirates"));
    const auto server = identity::Certificate::FromPem(answer.server_certificate);
    QVERIFY(*server->GetSubject() == TlsNode("proxy-1", {Role::kProxy}));
  }

  void Client_WithoutTls_IsRefused() {
    const Answer answer = Ask(Serve(Clients::kNodes), grpc::InsecureChannelCredentials());
    QVERIFY2(answer.Refused(), answer.Text().c_str());
  }

  void Client_WithoutACertificate_IsRefused_UnlessItMayBringAToken() {
    QVERIFY(Ask(Serve(Clients::kNodes), Anonymous()).Refused());
    QVERIFY(Ask(Serve(Clients::kNodesAndPrincipals), Anonymous()).Refused());
    const Answer answer = Ask(Serve(Clients::kAlsoWithoutCertificate), Anonymous());
    QVERIFY2(answer.status.ok(), answer.Text().c_str());
    QCOMPARE(answer.me, std::string("NO_CERTIFICATE"));
    // One that has a certificate is known there too.
    const Answer node = Ask(Serve(Clients::kAlsoWithoutCertificate), Credentials("client"));
    QCOMPARE(node.me, std::string("node nm-1 (nodemanager) of cluster pirates"));
  }

  void Client_OfAForeignCa_IsRefused() {
    const Authority other = *Authority::Create("pirates", TlsNow());
    Save("client", other, TlsNode("nm-1", {Role::kNodeManager}), TlsNow(), authority_.get());
    for (const Clients clients : {Clients::kNodes, Clients::kAlsoWithoutCertificate}) {
      const Answer answer = Ask(Serve(clients), Unchecked("client"));
      QVERIFY2(answer.Refused(), answer.Text().c_str());
    }
  }

  void Client_Expired_IsRefused() {
    const base::WallTime past = TlsNow() - 100 * identity::kDay;
    // A CA that was there already.
    authority_ = std::make_unique<Authority>(*Authority::Create("pirates", past));
    Save("server", *authority_, TlsNode("proxy-1", {Role::kProxy}));
    Save("client", *authority_, TlsNode("nm-1", {Role::kNodeManager}), past);
    for (const Clients clients : {Clients::kNodes, Clients::kAlsoWithoutCertificate}) {
      const Answer answer = Ask(Serve(clients), Unchecked("client"));
      QVERIFY2(answer.Refused(), answer.Text().c_str());
    }
    // Its own program says so first.
    const auto refused = MakeChannelCredentials({.folder = Folder("client")}, base::SystemClock());
    QCOMPARE(Reason(refused.status()), std::string("CERTIFICATE_EXPIRED"));
  }

  // OpenSSL looks at the times in a full handshake only, by the system's clock.
  void Client_ExpiredByTheInjectedClock_IsRefused() {
    clock_ = std::make_unique<base::ManualClock>(TlsNow());
    const std::string address = Serve(Clients::kAlsoWithoutCertificate, {}, *clock_);
    QVERIFY(Ask(address, Credentials("client")).status.ok());
    clock_->StepWall(91 * identity::kDay);
    const Answer answer = Ask(address, Credentials("client"));
    QVERIFY2(answer.Refused(), answer.Text().c_str());
  }

  void Client_OfAnotherCluster_IsRefused() {
    // One CA may serve several clusters of a site.
    Save("client", *authority_, TlsNode("nm-1", {Role::kNodeManager}, "marines"));
    for (const Clients clients : {Clients::kNodes, Clients::kAlsoWithoutCertificate}) {
      const Answer answer = Ask(Serve(clients), Unchecked("client"));
      QVERIFY2(answer.Refused(), answer.Text().c_str());
    }
  }

  void Client_OfTheWrongRole_IsRefused() {
    const std::string address = Serve(Clients::kNodes, {Role::kInstance, Role::kDatabase});
    QVERIFY(Ask(address, Credentials("client")).Refused());
    Save("client", *authority_, TlsNode("db-1", {Role::kDatabase, Role::kAgent}));
    const Answer answer = Ask(address, Credentials("client"));
    QVERIFY2(answer.status.ok(), answer.Text().c_str());
  }

  void Principal_IsLetInWhereItMay_AndIsNoServer() {
    Save("client", *authority_, TlsPrincipal());
    QVERIFY(Ask(Serve(Clients::kNodes), Credentials("client")).Refused());
    const Answer answer = Ask(Serve(Clients::kNodesAndPrincipals), Credentials("client"));
    QCOMPARE(answer.me, std::string("principal ci (read) of tenant t in cluster pirates"));
    const auto refused =
        MakeServerCredentials({.folder = Folder("client")}, Clients::kNodes, base::SystemClock());
    QCOMPARE(Reason(refused.status()), std::string("WRONG_ROLE"));
  }

  void Server_IsCheckedByItsClient() {
    const std::string address = Serve(Clients::kNodes);
    const Answer role = Ask(address, Credentials("client", {Role::kNodeManager}));
    QVERIFY2(role.Refused(), role.Text().c_str());
    QVERIFY2(role.Text().find("WRONG_ROLE") != std::string::npos, role.Text().c_str());
    QVERIFY(Ask(address, Credentials("client", {Role::kProxy})).status.ok());

    const Authority other = *Authority::Create("pirates", TlsNow());
    Save("stranger", other, TlsNode("nm-1", {Role::kNodeManager}));
    QVERIFY(Ask(address, Credentials("stranger")).Refused());
    Save("marine", *authority_, TlsNode("nm-1", {Role::kNodeManager}, "marines"));
    const Answer cluster = Ask(address, Credentials("marine"));
    QVERIFY2(cluster.Text().find("WRONG_CLUSTER") != std::string::npos, cluster.Text().c_str());
  }

  void Tls12_IsRefused() {
    const std::string address = Serve(Clients::kNodes);
    const auto connect = [&](const char* version) {
      const identity::IdentityFiles files =
          identity::FilesOf(Folder("client"), identity::kNodeName);
      return testing::RunProgram(
          "openssl",
          {"s_client", "-connect", QString::fromStdString(address), version, "-alpn", "h2", "-cert",
           QString::fromStdString(files.certificate), "-key", QString::fromStdString(files.key),
           "-CAfile", QString::fromStdString(files.authorities)});
    };
    const testing::Outcome now = connect("-tls1_3");
    QVERIFY2(now.Says("New, TLSv1.3, Cipher is TLS_AES"), (now.out + now.err).c_str());
    const testing::Outcome old = connect("-tls1_2");
    QVERIFY2(old.Says("Cipher is (NONE)"), (old.out + old.err).c_str());
    QVERIFY(old.exit_code != 0);
  }

  void RenewedCertificate_IsUsedWithoutARestart() {
    const std::string address = Serve(Clients::kNodes);
    const auto client = Credentials("client");
    const Answer before = Ask(address, client);
    const auto key = identity::ReadKeyFile(ServerFiles().key);
    const identity::Certificate renewed = *authority_->Issue(
        identity::SigningRequest::Make(*key), TlsNode("proxy-1", {Role::kProxy}), TlsNow());
    QVERIFY(identity::SaveIdentity(Folder("server"), identity::kNodeName, *key, renewed,
                                   TrustBundle(authority_->certificate()))
                .ok());
    QVERIFY(before.server_certificate != renewed.ToPem());
    // No connection is refused meanwhile.
    bool refused = false;
    QVERIFY(testing::Eventually([&] {
      const Answer now = Ask(address, client);
      refused = refused || !now.status.ok();
      return now.server_certificate == renewed.ToPem();
    }));
    QVERIFY(!refused);
  }

  // The rotation of a CA: the server learns to believe the new one as well.
  void SecondCa_IsBelievedWithoutARestart() {
    const std::string address = Serve(Clients::kNodes);
    const Authority next = *Authority::Create("pirates", TlsNow());
    Save("client", next, TlsNode("nm-1", {Role::kNodeManager}), TlsNow(), authority_.get());
    const auto client = Unchecked("client");
    QVERIFY(Ask(address, client).Refused());
    TrustBundle both(authority_->certificate());
    QVERIFY(both.Add(next.certificate()).ok());
    const auto own = identity::LoadIdentity(Folder("server"), identity::kNodeName, TlsNow());
    QVERIFY(own.ok());
    QVERIFY(identity::SaveIdentity(Folder("server"), identity::kNodeName, own->key,
                                   own->certificate, both)
                .ok());
    QVERIFY(testing::Eventually([&] { return Ask(address, client).status.ok(); }));
  }

  // Each has threads of gRPC's that look at its files.
  void Credentials_EndTheirThreads() {
    const std::string address = Serve(Clients::kNodes);
    const auto threads = [] {
      return QDir("/proc/self/task").entryList(QDir::Dirs | QDir::NoDotAndDotDot).size();
    };
    QVERIFY(Ask(address, Credentials("client")).status.ok());
    const qsizetype before = threads();
    for (int i = 0; i < 30; ++i) QVERIFY(Ask(address, Credentials("client")).status.ok());
    QVERIFY(testing::Eventually([&] { return threads() < before + 10; }));
  }

  // Any TLS client can check a node: the CA and one name, whatever the address.
  void Server_IsKnownByName_ToOtherClients() {
    const std::string address = Serve(Clients::kAlsoWithoutCertificate);
    const auto own = identity::LoadIdentity(Folder("server"), identity::kNodeName, TlsNow());
    QVERIFY(own.ok());
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = own->authorities.ToPem();
    QVERIFY(Ask(address, grpc::SslCredentials(options)).status.ok());
    options.pem_root_certs = Authority::Create("pirates", TlsNow())->certificate().ToPem();
    QVERIFY(Ask(address, grpc::SslCredentials(options)).Refused());
  }

  void BadFiles_AreRefusedAtTheStart() {
    QCOMPARE(chmod(ServerFiles().key.c_str(), 0644), 0);
    const auto refused =
        MakeServerCredentials({.folder = Folder("server")}, Clients::kNodes, base::SystemClock());
    QCOMPARE(Reason(refused.status()), std::string("MODE_TOO_WIDE"));
    QCOMPARE(
        Reason(MakeChannelCredentials({.folder = Folder("none")}, base::SystemClock()).status()),
        std::string("NO_FILE"));
  }

 private:
  std::string Folder(const QString& name) const { return temp_->filePath(name).toStdString(); }
  identity::IdentityFiles ServerFiles() const {
    return identity::FilesOf(Folder("server"), identity::kNodeName);
  }

  /// Makes an identity's folder anew. It believes `believed`, or else the CA that signs it.
  void Save(const QString& name, const Authority& signer, const Subject& subject,
            base::WallTime now = TlsNow(), const Authority* believed = nullptr) {
    const identity::PrivateKey key = identity::PrivateKey::Generate();
    const auto certificate = signer.Issue(identity::SigningRequest::Make(key), subject, now);
    QVERIFY2(certificate.ok(), certificate.status().ToString().c_str());
    const Authority& trusted = believed != nullptr ? *believed : signer;
    const absl::Status saved = identity::SaveIdentity(
        Folder(name), identity::kNodeName, key, *certificate, TrustBundle(trusted.certificate()));
    QVERIFY2(saved.ok(), saved.ToString().c_str());
  }

  /// Starts the server and returns its address.
  std::string Serve(Clients clients, identity::RoleSet roles = {},
                    const base::Clock& clock = base::SystemClock()) {
    const auto credentials =
        MakeServerCredentials({.folder = Folder("server"), .roles = roles}, clients, clock);
    if (!credentials.ok()) {
      qWarning("%s", credentials.status().ToString().c_str());
      return {};
    }
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", *credentials, &port);
    builder.RegisterService(&service_);
    server_.reset();
    server_ = builder.BuildAndStart();
    return "127.0.0.1:" + std::to_string(port);
  }

  std::shared_ptr<grpc::ChannelCredentials> Credentials(const QString& name,
                                                        identity::RoleSet roles = {}) const {
    auto credentials =
        MakeChannelCredentials({.folder = Folder(name), .roles = roles}, base::SystemClock());
    if (!credentials.ok()) qWarning("%s", credentials.status().ToString().c_str());
    return credentials.ok() ? *credentials : nullptr;
  }

  /// Those of a client that checks neither itself nor the server, as an attacker's.
  std::shared_ptr<grpc::ChannelCredentials> Unchecked(const QString& name) const {
    const auto read = [](const std::string& path) {
      QFile file(QString::fromStdString(path));
      return file.open(QIODevice::ReadOnly) ? file.readAll().toStdString() : std::string();
    };
    const identity::IdentityFiles files = identity::FilesOf(Folder(name), identity::kNodeName);
    const std::vector<grpc::experimental::IdentityKeyCertPair> pairs = {
        {.private_key = read(files.key), .certificate_chain = read(files.certificate)}};
    return WithoutChecks(pairs);
  }
  std::shared_ptr<grpc::ChannelCredentials> Anonymous() const { return WithoutChecks({}); }

  std::shared_ptr<grpc::ChannelCredentials> WithoutChecks(
      const std::vector<grpc::experimental::IdentityKeyCertPair>& pairs) const {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            authority_->certificate().ToPem(), pairs));
    options.watch_root_certs();
    if (!pairs.empty()) options.watch_identity_key_cert_pairs();
    options.set_certificate_verifier(
        std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
    options.set_check_call_host(false);
    return grpc::experimental::TlsCredentials(options);
  }

  std::unique_ptr<QTemporaryDir> temp_;
  std::unique_ptr<Authority> authority_;
  WhoAmI service_;
  std::unique_ptr<base::ManualClock> clock_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::TlsTest)
#include "tls_test.moc"
