// The calls about the cluster's configuration.
#include <grpcpp/grpcpp.h>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/client/client_impl.h"
#include "onepiece/v1/cluster_config.grpc.pb.h"

namespace onepiece::client {
namespace {

using ConfigStub = v1::ConfigService::Stub;

template <typename Request, typename Response>
absl::StatusOr<Response> AskForConfig(ProxySet& managers,
                                      grpc::Status (ConfigStub::*method)(grpc::ClientContext*,
                                                                         const Request&, Response*),
                                      const Request& request) {
  Response response;
  ONEPIECE_RETURN_IF_ERROR(managers.CallManager([&](const auto& channel, auto& context) {
    ConfigStub stub(channel);
    return (stub.*method)(&context, request, &response);
  }));
  return response;
}

}  // namespace

absl::StatusOr<v1::ConfigRevision> Client::GetConfig(std::uint64_t revision) {
  v1::GetConfigRequest request;
  request.set_revision(revision);
  return AskForConfig(impl_->proxies, &ConfigStub::GetConfig, request);
}

absl::StatusOr<v1::ListConfigRevisionsResponse> Client::ListConfigRevisions(
    const v1::ListConfigRevisionsRequest& request) {
  return AskForConfig(impl_->proxies, &ConfigStub::ListConfigRevisions, request);
}

absl::StatusOr<v1::ApplyConfigResponse> Client::ApplyConfig(v1::ApplyConfigRequest request) {
  // A retried request has one effect.
  if (request.request_id().empty()) request.set_request_id(base::Uid::GenerateRandom().ToString());
  return AskForConfig(impl_->proxies, &ConfigStub::ApplyConfig, request);
}

}  // namespace onepiece::client
