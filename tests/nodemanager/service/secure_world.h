// NodeManager replicas in this process that speak TLS, and callers of all kinds.
#pragma once

#include <QTemporaryDir>
#include <QtTest>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cluster/identity/identity_folder.h"
#include "cluster/identity/secret_files.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/config_service.h"
#include "nodemanager/service/consensus_service.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/elasticity_service.h"
#include "nodemanager/service/identity_keeper.h"
#include "nodemanager/service/identity_service.h"
#include "nodemanager/service/node_manager_service.h"
#include "tests/channel_with.h"
#include "tests/eventually.h"

namespace onepiece::nodemanager {

inline constexpr char kPirates[] = "pirates";

/// One replica. Its clock is the world's, which the test moves; TLS has the system's.
class SecureReplica {
 public:
  SecureReplica(std::string name, std::string folder, base::ManualClock& clock)
      : name_(std::move(name)), folder_(std::move(folder)), clock_(clock) {
    rpc::Server reserved{rpc::ServerOptions{}};
    if (!reserved.Start().ok()) qFatal("no port");
    address_ = reserved.address();
  }
  ~SecureReplica() { Stop(); }
  SecureReplica(const SecureReplica&) = delete;
  SecureReplica& operator=(const SecureReplica&) = delete;

  [[nodiscard]] paxos::Seat seat() const { return {.name = name_, .address = address_}; }
  [[nodiscard]] const std::string& address() const { return address_; }
  /// Of the identity.
  [[nodiscard]] std::string folder() const { return folder_ + "/identity"; }
  Controller& controller() { return *controller_; }
  IdentityKeeper& keeper() { return *keeper_; }
  rpc::Door& door() { return *door_; }
  ReplicatedLog& log() { return *log_; }
  [[nodiscard]] bool runs() const { return server_ != nullptr; }

  void Start(const std::vector<paxos::Seat>& seats, bool bootstrap) {
    const auto credentials = rpc::MakeServerCredentials(
        {.folder = folder()}, rpc::Clients::kAlsoWithoutCertificate, base::SystemClock());
    if (!credentials.ok()) qFatal("%s", base::Message(credentials.status()).c_str());
    door_ = std::make_unique<rpc::Door>(kPirates, clock_);
    ReplicatedLogOptions options{.data_dir = folder_ + "/data",
                                 .cluster_id = kPirates,
                                 .name = name_,
                                 .seats = seats,
                                 .bootstrap = bootstrap};
    options.paxos.version = kCommandVersion;
    log_ = std::move(ReplicatedLog::Open(options)).value();
    controller_ = std::make_unique<Controller>(
        *log_, clock_, ControllerOptions{.cluster_id = [this] { return log_->cluster_id(); }});
    log_->OnRole([this](bool) { controller_->OnRole(); });
    server_ = std::make_unique<rpc::Server>(
        rpc::ServerOptions{.listen = address_, .credentials = *credentials, .door = door_.get()});
    MakeServices();
    if (!server_->Start().ok()) qFatal("Start failed");
    if (!log_->Start(address_).ok()) qFatal("the log does not start");
  }
  void Stop() {
    if (!runs()) return;
    keeper_->Stop();
    controller_->Stop();
    log_->Stop();
    server_->Shutdown(std::chrono::seconds(5));
    server_.reset();
    identities_.reset();
    service_.reset();
    keeper_.reset();
  }

 private:
  void MakeServices() {
    const auto addresses = [this] { return log_->Addresses(); };
    keeper_ = std::make_unique<IdentityKeeper>(
        *controller_, clock_,
        IdentityKeeperOptions{.folder = folder(), .door = door_.get(), .addresses = addresses});
    service_ = std::make_unique<NodeManagerService>(
        *controller_, server_->stopping(),
        NodeManagerServiceOptions{
            .watches = {}, .addresses = addresses, .read_only = false, .door = door_.get()});
    identities_ = std::make_unique<IdentityService>(
        *controller_, *keeper_,
        IdentityServiceOptions{.door = door_.get(), .addresses = addresses});
    elasticity_ = std::make_unique<ElasticityService>(*controller_, false, door_.get());
    configuration_ = std::make_unique<ConfigService>(*controller_, false, door_.get());
    consensus_ = std::make_unique<ConsensusService>(*log_, false, nullptr, door_.get());
    consensus_->SetSealKey([this] { return keeper_->SealKey(); });
    const std::vector<grpc::Service*> services = {service_.get(),    identities_.get(),
                                                  elasticity_.get(), configuration_.get(),
                                                  consensus_.get(),  &log_->service()};
    for (grpc::Service* service : services) server_->AddService(*service);
  }

  const std::string name_, folder_;
  base::ManualClock& clock_;
  std::string address_;
  std::unique_ptr<rpc::Door> door_;
  std::unique_ptr<ReplicatedLog> log_;
  std::unique_ptr<Controller> controller_;
  std::unique_ptr<IdentityKeeper> keeper_;
  std::unique_ptr<NodeManagerService> service_;
  std::unique_ptr<IdentityService> identities_;
  std::unique_ptr<ElasticityService> elasticity_;
  std::unique_ptr<ConfigService> configuration_;
  std::unique_ptr<ConsensusService> consensus_;
  std::unique_ptr<rpc::Server> server_;
};

/// The replicas "nm-1" …, of which the first has the CA's key and begins the group.
///
/// Threading: thread-confined.
class SecureWorld {
 public:
  using Credentials = std::shared_ptr<grpc::ChannelCredentials>;

  explicit SecureWorld(int replicas = 1)
      : authority_(*identity::Authority::Create(kPirates, base::SystemClock().WallNow())) {
    for (int i = 1; i <= replicas; ++i) {
      const std::string name = "nm-" + std::to_string(i);
      replicas_.push_back(std::make_unique<SecureReplica>(name, Path(name), clock_));
      if (i == 1) Check(identity::EnsureSecretFolder(replicas_[0]->folder()));
      if (i == 1) Check(identity::SaveAuthority(replicas_[0]->folder(), authority_));
      Save(replicas_.back()->folder(), Node(name, identity::Role::kNodeManager));
    }
    // One process has one identity. The replicas look for a role only.
    rpc::UseCredentials(
        *rpc::MakeChannelCredentials({.folder = replicas_[0]->folder()}, base::SystemClock()));
  }
  ~SecureWorld() {
    replicas_.clear();
    rpc::UseCredentials(nullptr);
  }
  SecureWorld(const SecureWorld&) = delete;
  SecureWorld& operator=(const SecureWorld&) = delete;

  void Start() {
    std::vector<paxos::Seat> seats;
    for (const auto& replica : replicas_) seats.push_back(replica->seat());
    for (const auto& replica : replicas_)
      replica->Start(replicas_.size() > 1 ? seats : std::vector<paxos::Seat>(),
                     replicas_.size() > 1 && replica == replicas_[0]);
    Leader();
  }
  /// The replica that leads, after it has taken over.
  SecureReplica& Leader() {
    SecureReplica* leader = nullptr;
    const bool found = testing::Eventually([&] {
      for (const auto& replica : replicas_) {
        if (!replica->runs() || !replica->log().Term().ok()) continue;
        if (replica->controller().Term().ok() || replica->controller().TakeOver().ok())
          leader = replica.get();
      }
      return leader != nullptr;
    });
    if (!found) qFatal("nobody leads");
    return *leader;
  }
  SecureReplica& replica(std::size_t i) { return *replicas_[i]; }
  base::ManualClock& clock() { return clock_; }
  identity::Authority& authority() { return authority_; }
  [[nodiscard]] std::string Path(const std::string& name) const {
    return dir_.filePath(QString::fromStdString(name)).toStdString();
  }

  static identity::Subject Node(const std::string& id, identity::Role role) {
    return identity::NodeSubject{.cluster = kPirates, .id = id, .roles = {role}};
  }
  static identity::Subject Person(const std::string& name, identity::ScopeSet scopes,
                                  const std::string& tenant = "films") {
    return identity::PrincipalSubject{
        .cluster = kPirates, .name = name, .tenant = tenant, .scopes = scopes};
  }

  /// Makes an identity for a caller, and returns how it calls.
  Credentials Make(const identity::Subject& subject) {
    const std::string folder = Path("caller-" + std::to_string(++callers_));
    Save(folder, subject);
    return Of(folder);
  }
  Credentials Admin() { return Make(Person("ann", {identity::Scope::kAdmin})); }
  Credentials Of(const std::string& folder) const {
    auto made = rpc::MakeChannelCredentials({.folder = folder}, base::SystemClock());
    if (!made.ok()) qFatal("%s", base::Message(made.status()).c_str());
    return *made;
  }
  Credentials Token(const std::string& token) const {
    return *rpc::MakeTokenCredentials(replicas_[0]->folder() + "/ca.pem", token, kPirates,
                                      base::SystemClock());
  }
  /// A caller that shows nothing, as a joiner.
  Credentials Nobody() const {
    grpc::experimental::TlsChannelCredentialsOptions options;
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            authority_.certificate().ToPem(),
            std::vector<grpc::experimental::IdentityKeyCertPair>()));
    options.watch_root_certs();
    options.set_certificate_verifier(
        std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
    options.set_check_call_host(false);
    return grpc::experimental::TlsCredentials(options);
  }

  template <typename Service>
  std::unique_ptr<typename Service::Stub> Stub(const SecureReplica& replica,
                                               const Credentials& credentials) const {
    return Service::NewStub(testing::ChannelWith(replica.address(), credentials));
  }
  auto Identities(const Credentials& credentials) {
    return Stub<v1::IdentityService>(Leader(), credentials);
  }
  auto Nodes(const Credentials& credentials) {
    return Stub<v1::NodeManagerService>(Leader(), credentials);
  }

 private:
  static void Check(const absl::Status& status) {
    if (!status.ok()) qFatal("%s", base::Message(status).c_str());
  }
  void Save(const std::string& folder, const identity::Subject& subject) const {
    Check(identity::MakeIdentity(folder, identity::kNodeName, subject, authority_,
                                 base::SystemClock().WallNow())
              .status());
  }

  QTemporaryDir dir_;
  base::ManualClock clock_{base::SystemClock().WallNow()};
  identity::Authority authority_;
  int callers_ = 0;
  std::vector<std::unique_ptr<SecureReplica>> replicas_;
};

}  // namespace onepiece::nodemanager
