#include "nodemanager/service/identity_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/token.h"
#include "cluster/rpc/read_only.h"
#include "cluster/rpc/status.h"
#include "nodemanager/service/command_caller.h"
#include "nodemanager/service/identity_input.h"

namespace onepiece::nodemanager {
namespace {

template <typename Response>
grpc::Status Reply(absl::StatusOr<Response> result, Response* response) {
  if (!result.ok()) return rpc::ToGrpc(result.status());
  *response = *std::move(result);
  return grpc::Status::OK;
}

absl::Status WrongToken() {
  return base::MakeError(absl::StatusCode::kUnauthenticated, "WRONG_TOKEN",
                         "the cluster knows no such token");
}

absl::Status NodeIdTaken(const std::string& node_id, const std::string& roles) {
  return base::MakeError(absl::StatusCode::kAlreadyExists, "NODE_ID_TAKEN",
                         absl::StrCat("'", node_id, "' is a node with role ", roles,
                                      ": take another id, or remove that node first"),
                         {{"node_id", node_id}});
}

// One id for all attempts of one joiner, and for nobody else: it covers the key and the token.
std::string JoinId(const v1::JoinRequest& request, const std::string& key_hash) {
  if (request.request_id().empty()) return "";
  return absl::StrCat(
      "join/", identity::ToHex(identity::HashOfSecret(absl::StrCat(
                   key_hash, identity::HashOfSecret(request.secret()), request.request_id()))));
}

const char* WordOf(rpc::Shown shown) {
  switch (shown) {
    case rpc::Shown::kInsecure:
      return "insecure";
    case rpc::Shown::kCertificate:
      return "certificate";
    case rpc::Shown::kToken:
      return "token";
    case rpc::Shown::kNothing:
      break;
  }
  return "nothing";
}

template <typename Token>
Token WithoutHash(Token token) {
  token.clear_secret_hash();
  return token;
}

}  // namespace

struct IdentityService::Signed {
  identity::Certificate certificate;
  v1::IssuedCertificate record;
};

rpc::Caller IdentityService::CallerOf(const grpc::ServerContext& context) const {
  return nodemanager::CallerOf(options_.door, &context);
}

v1::Command IdentityService::CommandOf(const grpc::ServerContext& context,
                                       const std::string& reason) const {
  v1::Command command;
  command.set_reason(reason);
  SignCommand(options_.door, &context, command);
  return command;
}

absl::Status IdentityService::CheckSecure() const {
  if (options_.door != nullptr) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "INSECURE",
                         "this cluster runs with --insecure: it has no certificates and no tokens");
}

// This server's own door must know at once what it has just told somebody.
absl::Status IdentityService::Propose(v1::Command command) {
  ONEPIECE_RETURN_IF_ERROR(controller_.Propose(std::move(command)).status());
  keeper_.Refresh();
  return absl::OkStatus();
}

std::string IdentityService::ClusterId() const {
  std::string id;
  controller_.Read([&](const StateMachine& state) { id = state.cluster_id(); });
  return id;
}

std::string IdentityService::Authorities() const {
  std::string authorities;
  const std::int64_t now = base::ToUnixMs(controller_.clock().WallNow());
  controller_.Read(
      [&](const StateMachine& state) { authorities = state.identity().Table(now).authorities(); });
  return authorities;
}

// ---- Certificates ----

absl::StatusOr<v1::JoinToken> IdentityService::FindJoinToken(const v1::JoinRequest& request,
                                                             const std::string& command_id) {
  const std::string hash = identity::HashOfSecret(request.secret());
  std::optional<v1::JoinToken> token;
  bool remembered = false;
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
    const auto found = state.identity().join_tokens().find(hash);
    if (found != state.identity().join_tokens().end()) token = found->second;
    remembered = !command_id.empty() && state.Remembers(command_id);
    return true;
  }));
  if (!token) return WrongToken();
  // An earlier attempt of this request may be what used the token up.
  if (remembered) return *token;
  const identity::JoinTokenRecord record{.secret_hash = hash,
                                         .roles = {},
                                         .uses_left = token->uses_left(),
                                         .expires = base::FromUnixMs(token->expires_unix_ms())};
  ONEPIECE_RETURN_IF_ERROR(
      identity::CheckJoinToken(record, request.secret(), controller_.clock().WallNow()));
  return *token;
}

// A token for instances must not make its holder a NodeManager that the cluster knows.
absl::Status IdentityService::CheckNodeId(const std::string& node_id, identity::RoleSet roles) {
  const std::int64_t now = base::ToUnixMs(controller_.clock().WallNow());
  absl::Status status;
  controller_.Read([&](const StateMachine& state) {
    if (const auto known = state.nodes().find(node_id); known != state.nodes().end()) {
      const std::optional<identity::Role> role = IdentityRole(known->second.node().role());
      if (role && !roles.Has(*role)) status = NodeIdTaken(node_id, identity::WordOf(*role));
    }
    for (const auto& [serial, known] : state.identity().certificates()) {
      if (known.revoked() || known.not_after_unix_ms() <= now) continue;
      if (ShortSubject(known.subject()) != "node/" + node_id) continue;
      const auto subject = identity::ParseSubject(known.subject());
      if (!subject.ok()) continue;
      const auto& node = std::get<identity::NodeSubject>(*subject);
      if (node.roles != roles) status = NodeIdTaken(node_id, identity::FormatRoles(node.roles));
    }
  });
  return status;
}

absl::StatusOr<IdentityService::Signed> IdentityService::Sign(
    const std::string& signing_request, const identity::Subject& subject,
    const google::protobuf::RepeatedPtrField<std::string>& hosts) {
  ONEPIECE_ASSIGN_OR_RETURN(const identity::SigningRequest request,
                            identity::SigningRequest::FromPem(signing_request));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Authority authority, keeper_.Signer());
  ONEPIECE_ASSIGN_OR_RETURN(const std::string uri, identity::FormatSubject(subject));
  ONEPIECE_ASSIGN_OR_RETURN(identity::Certificate certificate,
                            authority.Issue(request, subject, controller_.clock().WallNow(),
                                            {.hosts = {hosts.begin(), hosts.end()}}));
  v1::IssuedCertificate record;
  record.set_serial(certificate.SerialNumber());
  record.set_subject(uri);
  record.set_not_before_unix_ms(base::ToUnixMs(certificate.not_before()));
  record.set_not_after_unix_ms(base::ToUnixMs(certificate.not_after()));
  return Signed{.certificate = std::move(certificate), .record = std::move(record)};
}

absl::Status IdentityService::Record(const Signed& made, v1::Command command) {
  v1::IssueCertificate& issue = *command.mutable_issue_certificate();
  *issue.mutable_certificate() = made.record;
  ONEPIECE_RETURN_IF_ERROR(Propose(command));
  bool recorded = false;
  controller_.Read([&](const StateMachine& state) {
    recorded = state.identity().certificates().contains(made.record.serial());
  });
  if (recorded) return absl::OkStatus();
  // The answer is that of an earlier attempt, whose certificate nobody has got. This one must be
  // known too, and costs no second use.
  command.clear_request_id();
  issue.clear_join_token();
  return Propose(std::move(command));
}

absl::StatusOr<v1::JoinResponse> IdentityService::Join(const grpc::ServerContext& context,
                                                       const v1::JoinRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckSecure());
  ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
  // Who has no token costs no more than a hash.
  if (request.secret().size() != identity::kSecretBytes) return WrongToken();
  const std::string hash = identity::HashOfSecret(request.secret());
  bool known = false;
  controller_.Read(
      [&](const StateMachine& state) { known = state.identity().join_tokens().contains(hash); });
  if (!known) return WrongToken();
  ONEPIECE_RETURN_IF_ERROR(CheckLength("request_id", request.request_id()));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::SigningRequest key,
                            identity::SigningRequest::FromPem(request.signing_request()));
  const std::string command_id = JoinId(request, key.PublicKeyHash());
  ONEPIECE_ASSIGN_OR_RETURN(const v1::JoinToken token, FindJoinToken(request, command_id));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::RoleSet roles, identity::ParseRoles(token.roles()));
  const std::string cluster = ClusterId();
  ONEPIECE_RETURN_IF_ERROR(CheckNodeId(request.node_id(), roles));
  ONEPIECE_ASSIGN_OR_RETURN(
      Signed made,
      Sign(request.signing_request(),
           identity::NodeSubject{.cluster = cluster, .id = request.node_id(), .roles = roles},
           request.hosts()));
  made.record.set_requester("token/" + identity::TokenId(hash));
  v1::Command command = CommandOf(context, "");
  command.set_request_id(command_id);
  command.set_caller("token/" + identity::TokenId(hash));
  command.mutable_issue_certificate()->set_join_token(hash);
  ONEPIECE_RETURN_IF_ERROR(Record(made, std::move(command)));
  spdlog::info("op=join node={} roles={} token={} serial={} from={}", request.node_id(),
               token.roles(), identity::TokenId(hash), made.record.serial(), context.peer());
  v1::JoinResponse response;
  response.set_cluster_id(cluster);
  response.set_certificate(made.certificate.ToPem());
  response.set_authorities(Authorities());
  for (const std::string& address : options_.addresses()) response.add_nodemanagers(address);
  return response;
}

absl::StatusOr<v1::RenewResponse> IdentityService::Renew(const grpc::ServerContext& context,
                                                         const v1::RenewRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckSecure());
  ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
  const rpc::Caller caller = CallerOf(context);
  const auto shown = identity::Certificate::FromPem(ShownCertificate(context));
  if (caller.shown() != rpc::Shown::kCertificate || !shown.ok()) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_CERTIFICATE",
                           "only a caller with a certificate can renew it");
  }
  ONEPIECE_ASSIGN_OR_RETURN(Signed made,
                            Sign(request.signing_request(), *caller.subject(), request.hosts()));
  made.record.set_requester(caller.name());
  v1::Command command;
  if (caller.principal() != nullptr) command = CommandOf(context, "");
  ONEPIECE_RETURN_IF_ERROR(Record(made, std::move(command)));
  // The old certificate may have been revoked while the new one was made. Then both must go.
  bool revoked = false;
  controller_.Read([&](const StateMachine& state) {
    const auto& known = state.identity().certificates();
    const auto old = known.find(shown->SerialNumber());
    revoked = old != known.end() && old->second.revoked();
  });
  if (revoked) {
    v1::Command revoke;
    revoke.mutable_revoke_certificate()->set_serial(made.record.serial());
    ONEPIECE_RETURN_IF_ERROR(Propose(std::move(revoke)));
    return base::MakeError(absl::StatusCode::kUnauthenticated, "CERTIFICATE_REVOKED",
                           "the certificate was revoked");
  }
  spdlog::info("op=renew subject={} serial={}", caller.name(), made.record.serial());
  v1::RenewResponse response;
  response.set_certificate(made.certificate.ToPem());
  response.set_authorities(Authorities());
  return response;
}

grpc::Status IdentityService::Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                                   v1::JoinResponse* response) {
  return Reply(Join(*context, *request), response);
}

grpc::Status IdentityService::Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                                    v1::RenewResponse* response) {
  return Reply(Renew(*context, *request), response);
}

grpc::Status IdentityService::ListCertificates(grpc::ServerContext*,
                                               const v1::ListCertificatesRequest*,
                                               v1::ListCertificatesResponse* response) {
  const std::int64_t now = base::ToUnixMs(controller_.clock().WallNow());
  return rpc::ToGrpc(controller_.ReadAtAnyReplica([&](const StateMachine& state) {
    for (const auto& [serial, known] : state.identity().certificates())
      if (known.not_after_unix_ms() > now) *response->add_certificates() = known;
  }));
}

grpc::Status IdentityService::RevokeCertificate(grpc::ServerContext* context,
                                                const v1::RevokeCertificateRequest* request,
                                                google::protobuf::Empty*) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  if (request->serial().empty() == request->subject().empty()) {
    return rpc::ToGrpc(BadField("BAD_SERIAL", "serial", "either a serial number or a subject"));
  }
  v1::Command command = CommandOf(*context, request->reason());
  command.mutable_revoke_certificate()->set_serial(request->serial());
  command.mutable_revoke_certificate()->set_subject(request->subject());
  return rpc::ToGrpc(Propose(std::move(command)));
}

// ---- Who calls, and what nodes must know ----

grpc::Status IdentityService::WhoAmI(grpc::ServerContext* context, const v1::WhoAmIRequest*,
                                     v1::WhoAmIResponse* response) {
  const rpc::Caller caller = CallerOf(*context);
  response->set_cluster_id(ClusterId());
  response->set_shown(WordOf(caller.shown()));
  if (caller.expires() != base::WallTime::max())
    response->set_expires_unix_ms(base::ToUnixMs(caller.expires()));
  if (const identity::NodeSubject* node = caller.node(); node != nullptr) {
    response->set_name(node->id);
    for (const std::string& role : identity::WordsOf(node->roles)) response->add_roles(role);
    return grpc::Status::OK;
  }
  response->set_tenant(caller.tenant());
  response->set_name(caller.principal() != nullptr ? caller.principal()->name : caller.name());
  const identity::ScopeSet scopes =
      caller.principal() != nullptr ? identity::WithImplied(caller.principal()->scopes)
      : caller.insecure()           ? identity::WithImplied({identity::Scope::kAdmin})
                                    : identity::ScopeSet();
  for (const std::string& scope : identity::WordsOf(scopes)) response->add_scopes(scope);
  return grpc::Status::OK;
}

grpc::Status IdentityService::GetIdentityTable(grpc::ServerContext*,
                                               const v1::GetIdentityTableRequest*,
                                               v1::IdentityTable* response) {
  const std::int64_t now = base::ToUnixMs(controller_.clock().WallNow());
  return rpc::ToGrpc(controller_.ReadAtAnyReplica(
      [&](const StateMachine& state) { *response = state.identity().Table(now); }));
}

grpc::Status IdentityService::GetSealKey(grpc::ServerContext*, const v1::GetSealKeyRequest*,
                                         v1::GetSealKeyResponse* response) {
  if (const absl::Status secure = CheckSecure(); !secure.ok()) return rpc::ToGrpc(secure);
  const absl::StatusOr<std::string> key = keeper_.SealKey();
  if (key.ok()) response->set_seal_key(*key);
  return rpc::ToGrpc(key.status());
}

// ---- Tokens and tenants ----

absl::Status IdentityService::SetTenant(const grpc::ServerContext& context, v1::Tenant tenant,
                                        const std::string& reason) {
  ONEPIECE_RETURN_IF_ERROR(CheckTenantName(tenant.name()));
  ONEPIECE_RETURN_IF_ERROR(CheckQuota(tenant.quota()));
  v1::Command command = CommandOf(context, reason);
  *command.mutable_set_tenant() = std::move(tenant);
  return Propose(std::move(command));
}

// What both kinds of token have. Returns what its maker is told, the secret's only appearance.
template <typename Kept, typename Secret>
v1::CreateTokenResponse IdentityService::Fill(Kept& token, const Secret& made, base::Duration life,
                                              const grpc::ServerContext& context) const {
  const base::WallTime now = controller_.clock().WallNow();
  token.set_secret_hash(identity::HashOfSecret(made.secret));
  token.set_created_unix_ms(base::ToUnixMs(now));
  token.set_expires_unix_ms(base::ToUnixMs(now + life));
  token.set_creator(CallerOf(context).name());
  v1::CreateTokenResponse response;
  response.set_id(identity::TokenId(token.secret_hash()));
  response.set_token(made.Format());
  response.set_expires_unix_ms(token.expires_unix_ms());
  return response;
}

absl::StatusOr<v1::CreateTokenResponse> IdentityService::CreateBearerToken(
    const grpc::ServerContext& context, const v1::CreateTokenRequest& request) {
  v1::BearerToken token = request.bearer();
  if (token.tenant().empty()) token.set_tenant(identity::kDefaultTenant);
  ONEPIECE_RETURN_IF_ERROR(CheckLength("app_id", token.app_id()));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::ScopeSet scopes, identity::ParseScopes(token.scopes()));
  ONEPIECE_RETURN_IF_ERROR(
      identity::FormatSubject(identity::PrincipalSubject{.cluster = ClusterId(),
                                                         .name = token.name(),
                                                         .tenant = token.tenant(),
                                                         .scopes = scopes})
          .status());
  ONEPIECE_ASSIGN_OR_RETURN(const base::Duration life, LifeOf(request.life_s(), kBearerTokenLife));
  if (request.has_quota()) {
    v1::Tenant tenant;
    tenant.set_name(token.tenant());
    *tenant.mutable_quota() = request.quota();
    ONEPIECE_RETURN_IF_ERROR(SetTenant(context, std::move(tenant), request.reason()));
  }
  const identity::BearerToken made = identity::BearerToken::Generate();
  token.set_scopes(identity::FormatScopes(scopes));
  v1::Command command = CommandOf(context, request.reason());
  const v1::CreateTokenResponse response = Fill(token, made, life, context);
  *command.mutable_create_token()->mutable_bearer() = std::move(token);
  ONEPIECE_RETURN_IF_ERROR(Propose(std::move(command)));
  return response;
}

absl::StatusOr<v1::CreateTokenResponse> IdentityService::CreateJoinToken(
    const grpc::ServerContext& context, const v1::CreateTokenRequest& request) {
  v1::JoinToken token = request.join();
  ONEPIECE_ASSIGN_OR_RETURN(const identity::RoleSet roles, identity::ParseRoles(token.roles()));
  ONEPIECE_ASSIGN_OR_RETURN(const base::Duration life,
                            LifeOf(request.life_s(), identity::kJoinTokenLife));
  if (token.uses_left() == 0) token.set_uses_left(1);
  if (token.uses_left() > kMaxJoinTokenUses) {
    return BadField("BAD_USES", "uses_left",
                    absl::StrCat("1 to ", kMaxJoinTokenUses, ", not ", token.uses_left()));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Authority authority, keeper_.Signer());
  const identity::JoinToken made =
      identity::JoinToken::Generate(authority.certificate().PublicKeyHash());
  token.set_roles(identity::FormatRoles(roles));
  v1::Command command = CommandOf(context, request.reason());
  const v1::CreateTokenResponse response = Fill(token, made, life, context);
  *command.mutable_create_token()->mutable_join() = std::move(token);
  ONEPIECE_RETURN_IF_ERROR(Propose(std::move(command)));
  return response;
}

absl::StatusOr<v1::CreateTokenResponse> IdentityService::CreateToken(
    const grpc::ServerContext& context, const v1::CreateTokenRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckSecure());
  ONEPIECE_RETURN_IF_ERROR(controller_.Term().status());
  if (request.has_bearer()) return CreateBearerToken(context, request);
  if (request.has_join()) return CreateJoinToken(context, request);
  return BadField("BAD_TOKEN", "kind", "a bearer token or a join token");
}

grpc::Status IdentityService::CreateToken(grpc::ServerContext* context,
                                          const v1::CreateTokenRequest* request,
                                          v1::CreateTokenResponse* response) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  return Reply(CreateToken(*context, *request), response);
}

grpc::Status IdentityService::ListTokens(grpc::ServerContext*, const v1::ListTokensRequest*,
                                         v1::ListTokensResponse* response) {
  return rpc::ToGrpc(controller_.ReadAtAnyReplica([&](const StateMachine& state) {
    for (const auto& [hash, token] : state.identity().bearer_tokens()) {
      *response->add_bearer_tokens() = WithoutHash(token);
      response->add_bearer_ids(identity::TokenId(hash));
    }
    for (const auto& [hash, token] : state.identity().join_tokens()) {
      *response->add_join_tokens() = WithoutHash(token);
      response->add_join_ids(identity::TokenId(hash));
    }
  }));
}

grpc::Status IdentityService::RevokeToken(grpc::ServerContext* context,
                                          const v1::RevokeTokenRequest* request,
                                          google::protobuf::Empty*) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  if (const absl::Status status = CheckLength("id", request->id()); !status.ok())
    return rpc::ToGrpc(status);
  v1::Command command = CommandOf(*context, request->reason());
  command.mutable_end_token()->set_id(request->id());
  return rpc::ToGrpc(Propose(std::move(command)));
}

grpc::Status IdentityService::SetTenant(grpc::ServerContext* context,
                                        const v1::SetTenantRequest* request, v1::Tenant* response) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  const absl::Status status = SetTenant(*context, request->tenant(), request->reason());
  if (status.ok()) *response = request->tenant();
  return rpc::ToGrpc(status);
}

grpc::Status IdentityService::ListTenants(grpc::ServerContext* context,
                                          const v1::ListTenantsRequest*,
                                          v1::ListTenantsResponse* response) {
  const rpc::Caller caller = CallerOf(*context);
  const bool all = caller.Has(identity::Scope::kRead);
  const auto shown = [&](const std::string& tenant) { return all || tenant == caller.tenant(); };
  return rpc::ToGrpc(controller_.ReadAtAnyReplica([&](const StateMachine& state) {
    for (const auto& [name, tenant] : state.identity().tenants())
      if (shown(name)) *response->add_tenants() = tenant;
    for (const auto& [key, use] : state.identity().uses())
      if (shown(use.tenant())) *response->add_uses() = use;
  }));
}

// ---- The CA ----

absl::StatusOr<v1::AuthorityStatus> IdentityService::Describe() {
  v1::AuthorityStatus status;
  absl::Status found;
  ONEPIECE_RETURN_IF_ERROR(controller_.ReadNewest([&](const StateMachine& state) {
    absl::StatusOr<v1::AuthorityStatus> made =
        DescribeAuthority(state, controller_.identity_reports());
    found = made.status();
    if (made.ok()) status = *std::move(made);
    return true;
  }));
  ONEPIECE_RETURN_IF_ERROR(found);
  return status;
}

absl::StatusOr<v1::AuthorityStatus> IdentityService::Rotate(
    const grpc::ServerContext& context, const v1::RotateAuthorityRequest& request) {
  ONEPIECE_RETURN_IF_ERROR(CheckSecure());
  ONEPIECE_ASSIGN_OR_RETURN(const v1::AuthorityStatus now, Describe());
  if (!now.waiting_for().empty()) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "ROTATION_WAITS",
        absl::StrCat("these nodes have not followed yet: ", absl::StrJoin(now.waiting_for(), ", "),
                     ". Wait, or stop and remove them"),
        {{"nodes", absl::StrJoin(now.waiting_for(), ",")}});
  }
  v1::Command command = CommandOf(context, request.reason());
  v1::SetAuthorities& change = *command.mutable_set_authorities();
  bool same = false;
  controller_.Read([&](const StateMachine& state) {
    same = state.identity().rotation() == now.rotation();
    change.set_base_epoch(state.identity().epoch());
    for (const v1::AuthorityRecord& authority : state.identity().authorities())
      *change.add_authorities() = authority;
  });
  if (!same) {
    return base::MakeError(absl::StatusCode::kAborted, "STALE_EPOCH",
                           "somebody else has just taken the rotation further: look again");
  }
  switch (now.rotation()) {
    case v1::AuthorityStatus::INTRODUCED:
      change.mutable_authorities()->SwapElements(0, 1);
      change.set_rotation(v1::AuthorityStatus::OVERLAP);
      break;
    case v1::AuthorityStatus::OVERLAP:
      change.mutable_authorities()->RemoveLast();
      change.set_rotation(v1::AuthorityStatus::NONE);
      break;
    default: {
      ONEPIECE_ASSIGN_OR_RETURN(
          const identity::Authority next,
          identity::Authority::Create(ClusterId(), controller_.clock().WallNow()));
      ONEPIECE_ASSIGN_OR_RETURN(*change.add_authorities(), keeper_.Sealed(next));
      change.set_rotation(v1::AuthorityStatus::INTRODUCED);
    }
  }
  ONEPIECE_RETURN_IF_ERROR(Propose(std::move(command)));
  return Describe();
}

grpc::Status IdentityService::RotateAuthority(grpc::ServerContext* context,
                                              const v1::RotateAuthorityRequest* request,
                                              v1::AuthorityStatus* response) {
  if (options_.read_only) return rpc::RefuseReadOnly();
  return Reply(Rotate(*context, *request), response);
}

grpc::Status IdentityService::GetAuthority(grpc::ServerContext*, const v1::GetAuthorityRequest*,
                                           v1::AuthorityStatus* response) {
  if (const absl::Status secure = CheckSecure(); !secure.ok()) return rpc::ToGrpc(secure);
  return Reply(Describe(), response);
}

}  // namespace onepiece::nodemanager
