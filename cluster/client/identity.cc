// The calls about who is in the cluster, and who may do what.
#include <grpcpp/grpcpp.h>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/client/client_impl.h"
#include "onepiece/v1/identity.grpc.pb.h"

namespace onepiece::client {
namespace {

using IdentityStub = v1::IdentityService::Stub;

template <typename Request, typename Response>
absl::StatusOr<Response> AskForIdentity(ProxySet& managers,
                                        grpc::Status (IdentityStub::*method)(grpc::ClientContext*,
                                                                             const Request&,
                                                                             Response*),
                                        const std::type_identity_t<Request>& request) {
  Response response;
  ONEPIECE_RETURN_IF_ERROR(managers.CallManager([&](const auto& channel, auto& context) {
    IdentityStub stub(channel);
    return (stub.*method)(&context, request, &response);
  }));
  return response;
}

}  // namespace

absl::StatusOr<v1::JoinResponse> Client::Join(v1::JoinRequest request) {
  if (request.request_id().empty()) request.set_request_id(base::Uid::GenerateRandom().ToString());
  return AskForIdentity(impl_->proxies, &IdentityStub::Join, request);
}

absl::StatusOr<v1::WhoAmIResponse> Client::WhoAmI() {
  return AskForIdentity(impl_->proxies, &IdentityStub::WhoAmI, {});
}

absl::StatusOr<v1::RenewResponse> Client::Renew(const v1::RenewRequest& request) {
  return AskForIdentity(impl_->proxies, &IdentityStub::Renew, request);
}

absl::StatusOr<v1::CreateTokenResponse> Client::CreateToken(const v1::CreateTokenRequest& request) {
  return AskForIdentity(impl_->proxies, &IdentityStub::CreateToken, request);
}

absl::StatusOr<v1::ListTokensResponse> Client::ListTokens() {
  return AskForIdentity(impl_->proxies, &IdentityStub::ListTokens, {});
}

absl::Status Client::RevokeToken(const v1::RevokeTokenRequest& request) {
  return AskForIdentity(impl_->proxies, &IdentityStub::RevokeToken, request).status();
}

absl::StatusOr<v1::ListCertificatesResponse> Client::ListCertificates() {
  return AskForIdentity(impl_->proxies, &IdentityStub::ListCertificates, {});
}

absl::Status Client::RevokeCertificate(const v1::RevokeCertificateRequest& request) {
  return AskForIdentity(impl_->proxies, &IdentityStub::RevokeCertificate, request).status();
}

absl::StatusOr<v1::AuthorityStatus> Client::RotateAuthority(
    const v1::RotateAuthorityRequest& request) {
  return AskForIdentity(impl_->proxies, &IdentityStub::RotateAuthority, request);
}

absl::StatusOr<v1::AuthorityStatus> Client::GetAuthority() {
  return AskForIdentity(impl_->proxies, &IdentityStub::GetAuthority, {});
}

absl::StatusOr<v1::Tenant> Client::SetTenant(const v1::SetTenantRequest& request) {
  return AskForIdentity(impl_->proxies, &IdentityStub::SetTenant, request);
}

absl::StatusOr<v1::ListTenantsResponse> Client::ListTenants() {
  return AskForIdentity(impl_->proxies, &IdentityStub::ListTenants, {});
}

}  // namespace onepiece::client
