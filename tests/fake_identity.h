// A NodeManager's IdentityService over real TLS, with a CA of its own, that keeps in memory what it
// is told.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/check.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/token.h"
#include "cluster/rpc/door.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "cluster/rpc/tls.h"
#include "onepiece/v1/elasticity.grpc.pb.h"
#include "onepiece/v1/identity.grpc.pb.h"

namespace onepiece::testing {

/// Threading: may be used from any thread.
class FakeIdentity final : public v1::IdentityService::Service {
 public:
  /// Over TLS when there is a `folder`, in which it keeps its identity, else plaintext.
  explicit FakeIdentity(const std::string& folder = "", const std::string& cluster = "pirates",
                        identity::RoleSet roles = {identity::Role::kNodeManager})
      : authority_(*identity::Authority::Create(cluster, Now() - 200 * identity::kDay)),
        cluster_(cluster) {
    rpc::ServerOptions options;
    if (!folder.empty()) {
      Save(folder, "node", identity::NodeSubject{cluster, "nm-1", roles});
      options.credentials =
          *rpc::MakeServerCredentials({.folder = folder, .name = "node", .roles = {}},
                                      rpc::Clients::kAlsoWithoutCertificate, base::SystemClock());
      door_ = std::make_unique<rpc::Door>(cluster, base::SystemClock());
      options.door = door_.get();
    }
    server_ = std::make_unique<rpc::Server>(options);
    server_->AddService(*this);
    server_->AddService(audit_);
    const auto port = server_->Start();
    ONEPIECE_CHECK(port.ok());
  }
  ~FakeIdentity() override { server_->Shutdown({}); }

  [[nodiscard]] const std::string& address() const { return server_->address(); }
  [[nodiscard]] const identity::Authority& authority() const { return authority_; }
  [[nodiscard]] rpc::Door& door() { return *door_; }

  /// Writes an identity that the fake's CA has signed.
  void Save(const std::string& folder, const std::string& name, const identity::Subject& subject,
            base::WallTime now = Now()) const {
    ONEPIECE_CHECK(identity::MakeIdentity(folder, name, subject, authority_, now).ok());
  }
  /// Makes a join token that lets in `uses` nodes.
  std::string MakeJoinToken(identity::RoleSet roles, std::uint32_t uses = 1,
                            base::Duration life = identity::kJoinTokenLife) {
    const auto token = identity::JoinToken::Generate(authority_.certificate().PublicKeyHash());
    const base::MutexLock lock(mutex_);
    join_tokens_.push_back({.secret_hash = identity::HashOfSecret(token.secret),
                            .roles = roles,
                            .uses_left = uses,
                            .expires = Now() + life});
    return token.Format();
  }
  /// The certificates that joiners get begin so much later; as of a host whose clock is ahead.
  void SetAhead(base::Duration ahead) {
    const base::MutexLock lock(mutex_);
    ahead_ = ahead;
  }
  /// What calls of ListTenants and ListCertificates answer.
  void Set(v1::ListTenantsResponse tenants) {
    const base::MutexLock lock(mutex_);
    tenants_ = std::move(tenants);
  }
  void Set(v1::ListCertificatesResponse certificates) {
    const base::MutexLock lock(mutex_);
    certificates_ = std::move(certificates);
  }
  void Set(v1::ListAuditResponse audit) { audit_.Set(std::move(audit)); }
  /// The requests so far, as text.
  std::vector<std::string> requests() {
    const base::MutexLock lock(mutex_);
    return requests_;
  }

  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request,
                    v1::JoinResponse* response) override {
    Note("join", *request);
    return rpc::ToGrpc(DoJoin(*request, *response));
  }
  grpc::Status WhoAmI(grpc::ServerContext* context, const v1::WhoAmIRequest* request,
                      v1::WhoAmIResponse* response) override {
    Note("whoami", *request);
    const rpc::Caller caller = rpc::CallerOf(door_.get(), *context);
    response->set_cluster_id(cluster_);
    response->set_name(caller.name());
    response->set_tenant(caller.principal() == nullptr ? "" : caller.tenant());
    response->set_shown(caller.insecure()                            ? "insecure"
                        : caller.shown() == rpc::Shown::kCertificate ? "certificate"
                                                                     : "token");
    if (caller.principal() != nullptr) {
      for (const std::string& word : identity::WordsOf(caller.principal()->scopes))
        response->add_scopes(word);
    }
    return grpc::Status::OK;
  }
  /// Gives a principal a certificate that begins now.
  grpc::Status Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                     v1::RenewResponse* response) override {
    Note("renew", *request);
    const rpc::Caller caller = rpc::CallerOf(door_.get(), *context);
    const auto csr = identity::SigningRequest::FromPem(request->signing_request());
    if (!csr.ok()) return rpc::ToGrpc(csr.status());
    const auto certificate = authority_.Issue(*csr, *caller.subject(), Now());
    if (!certificate.ok()) return rpc::ToGrpc(certificate.status());
    response->set_certificate(certificate->ToPem());
    response->set_authorities(authority_.certificate().ToPem());
    return grpc::Status::OK;
  }
  grpc::Status CreateToken(grpc::ServerContext*, const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override {
    Note("create", *request);
    response->set_id("0123456789abcdef");
    response->set_token(
        request->has_join()
            ? identity::JoinToken::Generate(authority_.certificate().PublicKeyHash()).Format()
            : identity::BearerToken::Generate().Format());
    response->set_expires_unix_ms(1'800'000'000'000);
    return grpc::Status::OK;
  }
  grpc::Status ListTokens(grpc::ServerContext*, const v1::ListTokensRequest*,
                          v1::ListTokensResponse* response) override {
    v1::BearerToken* bearer = response->add_bearer_tokens();
    bearer->set_name("ci");
    bearer->set_tenant("films");
    bearer->set_scopes("submit,read-own");
    bearer->set_expires_unix_ms(1'800'000'000'000);
    bearer->set_creator("principal/admin");
    response->add_bearer_ids("0123456789abcdef");
    v1::JoinToken* join = response->add_join_tokens();
    join->set_roles("instance,proxy");
    join->set_uses_left(3);
    join->set_expires_unix_ms(1'800'000'000'000);
    response->add_join_ids("fedcba9876543210");
    return grpc::Status::OK;
  }
  grpc::Status RevokeToken(grpc::ServerContext*, const v1::RevokeTokenRequest* request,
                           google::protobuf::Empty*) override {
    Note("revoke", *request);
    if (request->id() == "0123456789abcdef") return grpc::Status::OK;
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kNotFound, "TOKEN_UNKNOWN", "there is no such token"));
  }
  grpc::Status ListCertificates(grpc::ServerContext*, const v1::ListCertificatesRequest*,
                                v1::ListCertificatesResponse* response) override {
    const base::MutexLock lock(mutex_);
    *response = certificates_;
    return grpc::Status::OK;
  }
  grpc::Status RevokeCertificate(grpc::ServerContext*, const v1::RevokeCertificateRequest* request,
                                 google::protobuf::Empty*) override {
    Note("revoke", *request);
    return grpc::Status::OK;
  }
  grpc::Status RotateAuthority(grpc::ServerContext*, const v1::RotateAuthorityRequest* request,
                               v1::AuthorityStatus* response) override {
    Note("rotate", *request);
    response->set_fingerprint("aa");
    response->set_next_fingerprint("bb");
    response->set_rotation(v1::AuthorityStatus::INTRODUCED);
    response->add_waiting_for("instance-1");
    return grpc::Status::OK;
  }
  grpc::Status GetAuthority(grpc::ServerContext*, const v1::GetAuthorityRequest*,
                            v1::AuthorityStatus* response) override {
    response->set_fingerprint("aa");
    response->set_rotation(v1::AuthorityStatus::NONE);
    return grpc::Status::OK;
  }
  grpc::Status ListTenants(grpc::ServerContext*, const v1::ListTenantsRequest*,
                           v1::ListTenantsResponse* response) override {
    const base::MutexLock lock(mutex_);
    *response = tenants_;
    return grpc::Status::OK;
  }

 private:
  /// Answers ListAudit.
  class Audit final : public v1::ElasticityService::Service {
   public:
    void Set(v1::ListAuditResponse audit) {
      const base::MutexLock lock(mutex_);
      audit_ = std::move(audit);
    }
    grpc::Status ListAudit(grpc::ServerContext*, const v1::ListAuditRequest*,
                           v1::ListAuditResponse* response) override {
      const base::MutexLock lock(mutex_);
      *response = audit_;
      return grpc::Status::OK;
    }

   private:
    base::Mutex mutex_;
    v1::ListAuditResponse audit_ ABSL_GUARDED_BY(mutex_);
  };

  static base::WallTime Now() { return base::SystemClock().WallNow(); }
  void Note(const std::string& what, const google::protobuf::Message& request) {
    const base::MutexLock lock(mutex_);
    requests_.push_back(what + " " + request.ShortDebugString());
  }
  absl::Status DoJoin(const v1::JoinRequest& request, v1::JoinResponse& response) {
    const base::MutexLock lock(mutex_);
    absl::Status checked =
        base::MakeError(absl::StatusCode::kUnauthenticated, "WRONG_TOKEN", "no such token");
    for (identity::JoinTokenRecord& record : join_tokens_) {
      if (!identity::SecretMatches(request.secret(), record.secret_hash)) continue;
      checked = identity::CheckJoinToken(record, request.secret(), Now());
      if (!checked.ok()) break;
      --record.uses_left;
      ONEPIECE_ASSIGN_OR_RETURN(const auto csr,
                                identity::SigningRequest::FromPem(request.signing_request()));
      ONEPIECE_ASSIGN_OR_RETURN(
          const auto certificate,
          authority_.Issue(csr, identity::NodeSubject{cluster_, request.node_id(), record.roles},
                           Now() + ahead_, {.hosts = {}}));
      response.set_cluster_id(cluster_);
      response.set_certificate(certificate.ToPem());
      response.set_authorities(authority_.certificate().ToPem());
      response.add_nodemanagers(server_->address());
      return absl::OkStatus();
    }
    return checked;
  }

  const identity::Authority authority_;
  const std::string cluster_;
  std::unique_ptr<rpc::Door> door_;
  base::Mutex mutex_;
  std::vector<identity::JoinTokenRecord> join_tokens_ ABSL_GUARDED_BY(mutex_);
  base::Duration ahead_ ABSL_GUARDED_BY(mutex_){};
  v1::ListTenantsResponse tenants_ ABSL_GUARDED_BY(mutex_);
  v1::ListCertificatesResponse certificates_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> requests_ ABSL_GUARDED_BY(mutex_);
  Audit audit_;
  std::unique_ptr<rpc::Server> server_;  // Last: no call comes before the rest is there.
};

}  // namespace onepiece::testing
