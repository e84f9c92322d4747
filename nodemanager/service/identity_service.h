// Serves IdentityService over gRPC: joining, certificates, tokens, tenants (docs/security.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cluster/identity/authority.h"
#include "cluster/identity/signing_request.h"
#include "cluster/rpc/caller.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/identity_keeper.h"
#include "onepiece/v1/identity.grpc.pb.h"

namespace onepiece::nodemanager {

struct IdentityServiceOptions {
  /// Null: the NodeManager is insecure. What needs a CA or a token is refused then,
  /// FAILED_PRECONDITION (INSECURE).
  const rpc::Door* door = nullptr;
  bool read_only = false;  ///< What it means in NodeConfig. Joining and renewing go on.
  /// Returns host:port of every NodeManager replica.
  /// REQUIRES: set.
  std::function<std::vector<std::string>()> addresses;
};

/// Who is in the cluster. A certificate leaves this process after the log has it, so that it can be
/// listed and revoked.
///
/// Ownership: borrows the controller, the keeper and the door, which must outlive it.
/// Threading: thread-safe.
/// Blocking: changes wait for the log.
/// Errors: every error carries a reason (google.rpc.ErrorInfo). A replica that does not lead
/// answers WhoAmI(), GetSealKey(), GetIdentityTable() and lists. It refuses every other call with
/// UNAVAILABLE (NOT_LEADER).
class IdentityService final : public v1::IdentityService::Service {
 public:
  IdentityService(Controller& controller, IdentityKeeper& keeper, IdentityServiceOptions options)
      : controller_(controller), keeper_(keeper), options_(std::move(options)) {}

  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinResponse* response) override;
  grpc::Status Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                     v1::RenewResponse* response) override;
  grpc::Status WhoAmI(grpc::ServerContext* context, const v1::WhoAmIRequest* request,
                      v1::WhoAmIResponse* response) override;
  grpc::Status GetIdentityTable(grpc::ServerContext* context,
                                const v1::GetIdentityTableRequest* request,
                                v1::IdentityTable* response) override;
  grpc::Status GetSealKey(grpc::ServerContext* context, const v1::GetSealKeyRequest* request,
                          v1::GetSealKeyResponse* response) override;
  grpc::Status CreateToken(grpc::ServerContext* context, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override;
  grpc::Status ListTokens(grpc::ServerContext* context, const v1::ListTokensRequest* request,
                          v1::ListTokensResponse* response) override;
  grpc::Status RevokeToken(grpc::ServerContext* context, const v1::RevokeTokenRequest* request,
                           google::protobuf::Empty* response) override;
  grpc::Status ListCertificates(grpc::ServerContext* context,
                                const v1::ListCertificatesRequest* request,
                                v1::ListCertificatesResponse* response) override;
  grpc::Status RevokeCertificate(grpc::ServerContext* context,
                                 const v1::RevokeCertificateRequest* request,
                                 google::protobuf::Empty* response) override;
  grpc::Status RotateAuthority(grpc::ServerContext* context,
                               const v1::RotateAuthorityRequest* request,
                               v1::AuthorityStatus* response) override;
  grpc::Status GetAuthority(grpc::ServerContext* context, const v1::GetAuthorityRequest* request,
                            v1::AuthorityStatus* response) override;
  grpc::Status SetTenant(grpc::ServerContext* context, const v1::SetTenantRequest* request,
                         v1::Tenant* response) override;
  grpc::Status ListTenants(grpc::ServerContext* context, const v1::ListTenantsRequest* request,
                           v1::ListTenantsResponse* response) override;

 private:
  // A certificate that was signed and not given away yet.
  struct Signed;
  absl::StatusOr<v1::JoinResponse> Join(const grpc::ServerContext& context,
                                        const v1::JoinRequest& request);
  absl::StatusOr<v1::RenewResponse> Renew(const grpc::ServerContext& context,
                                          const v1::RenewRequest& request);
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const grpc::ServerContext& context,
                                                      const v1::CreateTokenRequest& request);
  template <typename Kept, typename Secret>
  v1::CreateTokenResponse Fill(Kept& token, const Secret& made, base::Duration life,
                               const grpc::ServerContext& context) const;
  absl::StatusOr<v1::CreateTokenResponse> CreateBearerToken(const grpc::ServerContext& context,
                                                            const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::CreateTokenResponse> CreateJoinToken(const grpc::ServerContext& context,
                                                          const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::AuthorityStatus> Rotate(const grpc::ServerContext& context,
                                             const v1::RotateAuthorityRequest& request);
  absl::StatusOr<v1::AuthorityStatus> Describe();
  absl::Status SetTenant(const grpc::ServerContext& context, v1::Tenant tenant,
                         const std::string& reason);

  // Finds the token's hash and roles, checked as far as this can be done without a command.
  absl::StatusOr<v1::JoinToken> FindJoinToken(const v1::JoinRequest& request,
                                              const std::string& command_id);
  absl::Status CheckNodeId(const std::string& node_id, identity::RoleSet roles);
  absl::StatusOr<Signed> Sign(const std::string& signing_request, const identity::Subject& subject,
                              const google::protobuf::RepeatedPtrField<std::string>& hosts);
  // Puts the certificate into the log.
  absl::Status Record(const Signed& made, v1::Command command);
  absl::Status Propose(v1::Command command);
  [[nodiscard]] absl::Status CheckSecure() const;
  [[nodiscard]] std::string ClusterId() const;
  [[nodiscard]] std::string Authorities() const;
  [[nodiscard]] rpc::Caller CallerOf(const grpc::ServerContext& context) const;
  // A command that the caller makes.
  [[nodiscard]] v1::Command CommandOf(const grpc::ServerContext& context,
                                      const std::string& reason) const;

  Controller& controller_;
  IdentityKeeper& keeper_;
  const IdentityServiceOptions options_;
};

}  // namespace onepiece::nodemanager
