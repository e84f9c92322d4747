#include "cluster/rpc/server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "cluster/base/check.h"
#include "cluster/base/host_port.h"
#include "cluster/base/status.h"
#include "cluster/rpc/acceptor.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/limits.h"
#include "cluster/rpc/mutexes.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "grpcpp/impl/server_initializer.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace onepiece::rpc {
namespace {

// A gRPC thread ends with its call when this many threads wait for one already. gRPC's default is
// 2. With it every call that waits for a disk costs a new thread, which took a third of the
// processor time of a NodeManager under 64 writers.
constexpr int kMaxIdleThreads = 64;
constexpr base::Duration kHandshakeLimit = std::chrono::seconds(10);
constexpr base::Duration kConnectionAge = std::chrono::hours(12);
// A connection without a call. gRPC clients come back when they have one.
constexpr base::Duration kIdleLimit = std::chrono::minutes(30);
// How long a peer may leave what it was sent, or a ping, without an answer.
constexpr base::Duration kPeerSilence = std::chrono::seconds(5);
// Of one connection. A call whose request does not come has no handler yet, so nothing else counts
// it. A proxy's connection to a database has a stream for each job that is watched.
constexpr int kMaxStreams = 1 << 14;
constexpr std::size_t kMaxMemoryBytes = std::size_t{512} << 20;

absl::StatusOr<base::HostPort> Split(const std::string& address) {
  if (auto parts = base::SplitHostPort(address)) return *std::move(parts);
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
                         "'" + address + "' is not host:port", {{"address", address}});
}

// gRPC does not say why it cannot listen. This asks the system by trying the same.
std::string WhyNot(const base::HostPort& where) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(where.host.c_str(), where.port.c_str(), &hints, &found);
      error != 0) {
    return gai_strerror(error);
  }
  std::string why = "refused";
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  if (fd >= 0) {
    const int yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)
      why = std::strerror(errno);
    close(fd);
  }
  freeaddrinfo(found);
  return why;
}

/// Tells the door which services the server has, before the first call. Only gRPC knows all of
/// them, its own ones too.
class RulesPlugin final : public grpc::ServerBuilderPlugin {
 public:
  RulesPlugin(Door& door, absl::Status& result) : door_(door), result_(result) {}
  grpc::string name() override { return "onepiece_access_rules"; }
  void InitServer(grpc::ServerInitializer* /*initializer*/) override {}
  void Finish(grpc::ServerInitializer* initializer) override {
    absl::StatusOr<AccessRules> rules = AccessRules::Of(*initializer->GetServiceList());
    result_ = rules.status();
    if (rules.ok()) door_.SetRules(*std::move(rules));
  }
  void ChangeArguments(const grpc::string& /*name*/, void* /*value*/) override {}

 private:
  Door& door_;
  absl::Status& result_;
};

class RulesOption final : public grpc::ServerBuilderOption {
 public:
  RulesOption(Door& door, absl::Status& result) : door_(door), result_(result) {}
  void UpdateArguments(grpc::ChannelArguments* /*arguments*/) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->push_back(std::make_unique<RulesPlugin>(door_, result_));
  }

 private:
  Door& door_;
  absl::Status& result_;
};

int Milliseconds(base::Duration time) {
  return static_cast<int>(time / std::chrono::milliseconds(1));
}

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return base::MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                         "cannot listen on " + address + ": " + why, {{"address", address}});
}

/// Bounds what callers can take of the process, whoever they are.
void Bound(grpc::ServerBuilder& builder, const ServerOptions& options) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  grpc::ResourceQuota quota("onepiece");
  quota.Resize(kMaxMemoryBytes).SetMaxThreads(options.max_threads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, kMaxIdleThreads);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  // Two servers that shared a port would each get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients ping idle connections every 10 s × their time scale. By default gRPC would close such
  // connections for too many pings.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 50);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             Milliseconds(base::Scaled(options.keepalive)));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(base::Scaled(kPeerSilence)));
  // Who stays silent in a handshake holds a descriptor, and gRPC would wait for two minutes.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(base::Scaled(kHandshakeLimit)));
}

void InitPluginsOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

}  // namespace

Server::Server(ServerOptions options) : options_(std::move(options)) {}

Server::~Server() { Shutdown(base::Duration::zero()); }

void Server::AddService(grpc::Service& service) {
  ONEPIECE_CHECK(server_ == nullptr);
  services_.push_back(&service);
}

absl::Status Server::Guard(grpc::ServerBuilder& builder, absl::Status& rules) {
  Door& door = *options_.door;
  options_.credentials->SetAuthMetadataProcessor(door.MakeProcessor());
  builder.SetOption(std::make_unique<RulesOption>(door, rules));
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(door.MakeCounter(base::Scaled(options_.answer_limit)));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  // A connection goes on showing the certificate that it began with. Clients get new ones long
  // before that ends, and must connect again to show them. Calls under way are not disturbed.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(kConnectionAge));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(kIdleLimit));
  ONEPIECE_ASSIGN_OR_RETURN(const base::HostPort where, Split(options_.listen));
  ONEPIECE_ASSIGN_OR_RETURN(acceptor_,
                            Acceptor::Listen(where.host, where.port, door.limits().connections));
  using From = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  hand_over_ =
      builder.experimental().AddExternalConnectionAcceptor(From::FROM_FD, options_.credentials);
  return absl::OkStatus();
}

absl::StatusOr<int> Server::Start() {
  ONEPIECE_CHECK(server_ == nullptr && !stopping_.stop_requested());
  ONEPIECE_CHECK((options_.credentials == nullptr) == (options_.door == nullptr));
  ONEPIECE_ASSIGN_OR_RETURN(const base::HostPort where, Split(options_.listen));
  IgnoreMutexOrder();
  InitPluginsOnce();
  grpc::ServerBuilder builder;
  int port = 0;
  absl::Status rules;
  if (options_.door == nullptr) {
    builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port);
  } else if (const absl::Status status = Guard(builder, rules); !status.ok()) {
    return CannotListen(options_.listen, base::Message(status));
  } else {
    port = acceptor_->port();
  }
  for (grpc::Service* service : services_) builder.RegisterService(service);
  Bound(builder, options_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    server_.reset();
    return CannotListen(options_.listen, WhyNot(where));
  }
  if (!rules.ok()) {
    Shutdown(base::Duration::zero());
    return rules;
  }
  SetHealth(ServingStatus::kNotServing);
  if (acceptor_ != nullptr) {
    acceptor_->Start(
        [this](const Acceptor::Connection& connection) {
          grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
          parameters.listener_fd = connection.listener;
          parameters.fd = connection.fd;
          hand_over_->HandleNewConnection(&parameters);
        },
        base::Scaled(kPeerSilence));
  }
  address_ = options_.listen.substr(0, options_.listen.rfind(':') + 1) + std::to_string(port);
  return port;
}

void Server::SetHealth(ServingStatus health) {
  ONEPIECE_CHECK(server_ != nullptr);
  server_->GetHealthCheckService()->SetServingStatus(health == ServingStatus::kServing);
}

void Server::SetHealth(const std::string& service, ServingStatus health) {
  ONEPIECE_CHECK(server_ != nullptr);
  server_->GetHealthCheckService()->SetServingStatus(service, health == ServingStatus::kServing);
}

void Server::EndHealth() {
  ONEPIECE_CHECK(server_ != nullptr);
  server_->GetHealthCheckService()->Shutdown();
}

void Server::Shutdown(base::Duration grace) {
  // Handlers of long streams look at this token. If it came later, they would use up the whole
  // grace.
  stopping_.request_stop();
  // No connection may come when gRPC no longer takes it: nobody would close it.
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (server_ == nullptr) return;
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_nanos(base::Scaled(grace).count(), GPR_TIMESPAN)));
  server_->Wait();
  server_.reset();
}

}  // namespace onepiece::rpc
