#include "tests/e2e/attacks.h"

#include <algorithm>
#include <functional>

#include "cluster/rpc/channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "onepiece/v1/telemetry.grpc.pb.h"
#include "tests/channel_with.h"

namespace onepiece::e2e {
namespace {

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

}  // namespace

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

std::vector<Tried> TryAttacks(const std::vector<std::string>& addresses,
                              const Credentials& credentials, const std::string& uid,
                              std::size_t count) {
  std::vector<Tried> tried;
  const std::vector<Attack> attacks = Attacks();
  for (const std::string& address : addresses) {
    const auto channel = testing::ChannelWith(address, credentials);
    for (std::size_t i = 0; i < std::min(count, attacks.size()); ++i)
      tried.push_back(
          {std::string(attacks[i].name) + " at " + address, attacks[i].call(channel, uid)});
  }
  return tried;
}

}  // namespace onepiece::e2e
