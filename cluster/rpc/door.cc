#include "cluster/rpc/door.h"

#include <spdlog/spdlog.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/token.h"
#include "cluster/identity/trust_bundle.h"
#include "cluster/rpc/answer_guard.h"
#include "cluster/rpc/limits.h"
#include "cluster/rpc/refusal_log.h"
#include "cluster/rpc/status.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_interceptor.h"

namespace onepiece::rpc {
namespace {

constexpr char kPath[] = ":path", kAuthorization[] = "authorization";
constexpr std::string_view kBearer = "Bearer ";
/// A server of a thousand nodes and as many clients knows them all.
constexpr std::size_t kMaxCachedCertificates = 4096;

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

absl::Status Unauthenticated(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kUnauthenticated, reason, message);
}

/// The certificate that TLS verified; empty when the peer showed none.
std::string_view CertificateOf(const grpc::AuthContext& context) {
  const auto pem = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return context.IsPeerAuthenticated() && !pem.empty() ? View(pem.front()) : std::string_view();
}

/// gRPC passes on the code and this text, so the reason goes into the text.
grpc::Status Refusal(const absl::Status& why) {
  return {static_cast<grpc::StatusCode>(why.code()),
          base::GetReason(why).reason + ": " + base::Message(why)};
}

/// Whom the limits count the call of `caller` for: a principal, else the connection. None for
/// nodes, which may call as they like.
std::optional<CallerLimits::Caller> CountedAs(const Caller& caller, bool is_stream,
                                              const grpc::AuthContext& connection) {
  if (caller.node() != nullptr || caller.insecure()) return std::nullopt;
  CallerLimits::Caller counted{
      .account = caller.name(), .name = caller.name(), .is_stream = is_stream};
  if (caller.principal() != nullptr) return counted;
  counted.is_stranger = true;
  // gRPC does not tell a call's address here. The connection's properties live as long as it does,
  // so where they are tells one from the other; a later one may get the account of an ended one.
  if (auto any = connection.begin(); any != connection.end())
    counted.account = std::to_string(reinterpret_cast<std::uintptr_t>((*any).second.data()));
  return counted;
}

class Processor final : public grpc::AuthMetadataProcessor {
 public:
  explicit Processor(Door& door) : door_(door) {}
  // It only looks things up.
  [[nodiscard]] bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const auto path = metadata.find(kPath), token = metadata.find(kAuthorization);
    const absl::StatusOr<Caller> caller =
        door_.Identify(CertificateOf(*context),
                       token == metadata.end() ? std::string_view() : View(token->second));
    const std::string_view method =
        path == metadata.end() ? std::string_view() : View(path->second);
    const absl::Status judged = caller.ok() ? Judge(*caller, method, *context) : caller.status();
    if (judged.ok()) return grpc::Status::OK;
    const std::optional<std::string> line =
        log_.Line(caller.ok() ? caller->name() : "unknown", method, base::GetReason(judged).reason,
                  base::SystemClock().Now());
    if (line.has_value()) spdlog::warn("{}", *line);
    return Refusal(judged);
  }

 private:
  absl::Status Judge(const Caller& caller, std::string_view method,
                     const grpc::AuthContext& connection) {
    ONEPIECE_RETURN_IF_ERROR(door_.Check(method, caller));
    const auto counted = CountedAs(caller, door_.IsStream(method), connection);
    return counted.has_value() ? door_.limits().calls.Admit(*counted) : absl::OkStatus();
  }

  Door& door_;
  RefusalLog log_;
};

/// One call from its handler's beginning until gRPC is done with it. The processor cannot count it:
/// nobody tells it when a call ends.
class CountedCall final : public grpc::experimental::Interceptor {
 public:
  CountedCall(Door& door, AnswerGuard& guard, grpc::experimental::ServerRpcInfo& info)
      : door_(door), guard_(guard), info_(info) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (!begun_) Begin();
    using Hook = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Hook::PRE_SEND_STATUS) && !answer_.has_value())
      answer_.emplace(guard_, *info_.server_context());
    methods->Proceed();
  }

 private:
  // Not the constructor's: gRPC makes interceptors before the context knows its call.
  void Begin() {
    begun_ = true;
    const grpc::ServerContextBase& context = *info_.server_context();
    const auto connection = context.auth_context();
    if (connection == nullptr) return;
    const bool is_stream = door_.IsStream(info_.method());
    if (const auto counted = CountedAs(door_.CallerOf(context), is_stream, *connection))
      under_way_ = door_.limits().calls.Begin(*counted);
  }

  Door& door_;
  AnswerGuard& guard_;
  grpc::experimental::ServerRpcInfo& info_;
  bool begun_ = false;
  CallerLimits::UnderWay under_way_;
  std::optional<AnswerGuard::Answer> answer_;
};

/// gRPC's, which destroys it after the last call.
class Counter final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  Counter(Door& door, base::Duration answer_limit) : door_(door), guard_(answer_limit) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CountedCall(door_, guard_, *info);  // gRPC's.
  }

 private:
  Door& door_;
  AnswerGuard guard_;
};

}  // namespace

struct Door::Table {
  std::uint64_t epoch = 0;
  std::map<std::string, v1::BearerToken> tokens;  // By hash.
  std::set<std::string, std::less<>> revoked;     // Serial numbers.
  std::vector<v1::Tenant> tenants;
};

/// What a certificate says.
struct Door::Known {
  identity::Certificate certificate;
  identity::Subject subject;
  std::string serial;
};

struct Door::Cache {
  /// Finds a text without a copy of it, because every call looks its certificate up.
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  base::Mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const Known>, Hash, std::equal_to<>> known
      ABSL_GUARDED_BY(mutex);
};

Door::Door(std::string cluster, const base::Clock& clock)
    : cluster_(std::move(cluster)),
      clock_(clock),
      cache_(std::make_unique<Cache>()),
      limits_(std::make_unique<Limits>(clock)) {}

Door::~Door() = default;

void Door::Take(const v1::IdentityTable& table) {
  auto next = std::make_shared<Table>();
  next->epoch = table.epoch();
  for (const v1::BearerToken& token : table.bearer_tokens())
    next->tokens.emplace(token.secret_hash(), token);
  next->tenants.assign(table.tenants().begin(), table.tenants().end());
  next->revoked.insert(table.revoked_serials().begin(), table.revoked_serials().end());
  const base::MutexLock lock(mutex_);
  if (table_ != nullptr && table_->epoch >= next->epoch) return;
  epoch_ = next->epoch;
  table_ = std::move(next);
}

std::vector<v1::Tenant> Door::Tenants() const {
  const std::shared_ptr<const Table> known = table();
  return known == nullptr ? std::vector<v1::Tenant>() : known->tenants;
}

std::shared_ptr<const Door::Table> Door::table() const {
  const base::MutexLock lock(mutex_);
  return table_;
}

absl::StatusOr<std::shared_ptr<const Door::Known>> Door::Know(std::string_view pem) const {
  {
    const base::MutexLock lock(cache_->mutex);
    if (const auto found = cache_->known.find(pem); found != cache_->known.end())
      return found->second;
  }
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Certificate certificate,
                            identity::Certificate::FromPem(pem));
  ONEPIECE_ASSIGN_OR_RETURN(identity::Subject subject, certificate.GetSubject());
  ONEPIECE_RETURN_IF_ERROR(identity::CheckCluster(subject, cluster_));
  auto known = std::make_shared<const Known>(
      Known{certificate, std::move(subject), certificate.SerialNumber()});
  const base::MutexLock lock(cache_->mutex);
  if (cache_->known.size() >= kMaxCachedCertificates) cache_->known.clear();
  cache_->known.emplace(pem, known);
  return known;
}

absl::StatusOr<Caller> Door::Identify(std::string_view certificate,
                                      std::string_view authorization) const {
  if (certificate.empty())
    return authorization.empty() ? Caller::Nobody() : FromToken(authorization);
  ONEPIECE_ASSIGN_OR_RETURN(const std::shared_ptr<const Known> known, Know(certificate));
  ONEPIECE_RETURN_IF_ERROR(identity::CheckTimes(known->certificate, clock_.WallNow()));
  const std::shared_ptr<const Table> table = this->table();
  if (table != nullptr && table->revoked.contains(known->serial)) {
    return Unauthenticated("CERTIFICATE_REVOKED", "the certificate of " +
                                                      identity::Describe(known->subject) +
                                                      " was revoked: ask an admin for another one");
  }
  return Caller(Shown::kCertificate, known->subject, known->certificate.not_after());
}

absl::StatusOr<Caller> Door::FromToken(std::string_view authorization) const {
  if (!authorization.starts_with(kBearer))
    return Unauthenticated("BAD_TOKEN", "authorization is \"Bearer\" and a token");
  absl::StatusOr<identity::BearerToken> token =
      identity::BearerToken::Parse(authorization.substr(kBearer.size()));
  if (!token.ok()) return Unauthenticated("BAD_TOKEN", base::Message(token.status()));
  const std::shared_ptr<const Table> table = this->table();
  if (table == nullptr) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NO_TABLE",
                           "this node has not learnt the cluster's tokens yet");
  }
  const auto found = table->tokens.find(identity::HashOfSecret(token->secret));
  if (found == table->tokens.end())
    return Unauthenticated("WRONG_TOKEN", "the cluster knows no such token");
  const v1::BearerToken& known = found->second;
  ONEPIECE_ASSIGN_OR_RETURN(const identity::ScopeSet scopes, identity::ParseScopes(known.scopes()));
  const identity::BearerTokenRecord record{.secret_hash = known.secret_hash(),
                                           .name = known.name(),
                                           .tenant = known.tenant(),
                                           .scopes = scopes,
                                           .expires = base::FromUnixMs(known.expires_unix_ms())};
  ONEPIECE_RETURN_IF_ERROR(identity::CheckBearerToken(record, token->secret, clock_.WallNow()));
  return Caller(
      Shown::kToken,
      identity::PrincipalSubject{
          .cluster = cluster_, .name = known.name(), .tenant = known.tenant(), .scopes = scopes},
      record.expires, known.app_id());
}

absl::Status Door::Check(std::string_view path, const Caller& caller) const {
  const AccessRule* rule = rules_.Find(path);
  if (rule == nullptr) {
    return base::MakeError(absl::StatusCode::kUnimplemented, "METHOD_UNKNOWN",
                           "this server has no method " + std::string(path));
  }
  return CheckAccess(*rule, caller);
}

bool Door::IsStream(std::string_view path) const {
  const AccessRule* rule = rules_.Find(path);
  return rule != nullptr && rule->is_stream;
}

Caller Door::CallerOf(const grpc::ServerContextBase& context) const {
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find(kAuthorization);
  absl::StatusOr<Caller> caller =
      Identify(CertificateOf(*context.auth_context()),
               token == metadata.end() ? std::string_view() : View(token->second));
  return caller.ok() ? *std::move(caller) : Caller::Nobody();
}

std::shared_ptr<grpc::AuthMetadataProcessor> Door::MakeProcessor() {
  return std::make_shared<Processor>(*this);
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> Door::MakeCounter(
    base::Duration answer_limit) {
  return std::make_unique<Counter>(*this, answer_limit);
}

Caller CallerOf(const Door* door, const grpc::ServerContextBase& context) {
  return door == nullptr ? Caller() : door->CallerOf(context);
}

}  // namespace onepiece::rpc
