#include "cluster/rpc/tls.h"

#include <cstdlib>
#include <mutex>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/token.h"
#include "cluster/identity/trust_bundle.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/support/channel_arguments.h"

namespace onepiece::rpc {
namespace {

namespace tls = grpc::experimental;

/// Whom one end lets the other be.
struct PeerRule {
  std::string cluster;  ///< Empty: any that the CAs have signed for.
  identity::RoleSet roles;
  bool principals = false;
  bool nobody = false;  ///< A peer without a certificate.
};

absl::Status CheckPeer(const PeerRule& rule, const identity::Subject& subject) {
  if (!rule.cluster.empty())
    ONEPIECE_RETURN_IF_ERROR(identity::CheckCluster(subject, rule.cluster));
  if (std::holds_alternative<identity::PrincipalSubject>(subject)) {
    if (rule.principals) return absl::OkStatus();
    return base::MakeError(absl::StatusCode::kPermissionDenied, "WRONG_ROLE",
                           identity::Describe(subject) + " is not a node");
  }
  return rule.roles.empty() ? absl::OkStatus() : identity::CheckRole(subject, rule.roles);
}

/// Runs after OpenSSL has verified the chain, the times and the purpose. It looks at the times
/// again: OpenSSL does not when a client resumes a session, which may be hours old.
///
/// Threading: thread-safe; gRPC calls it from its threads.
class SubjectVerifier final : public tls::ExternalCertificateVerifier {
 public:
  SubjectVerifier(PeerRule rule, const base::Clock& clock)
      : rule_(std::move(rule)), clock_(clock) {}
  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const absl::Status checked = Check(*request);
    // gRPC puts the text behind "Custom verification check failed with error".
    *status = checked.ok()
                  ? grpc::Status::OK
                  : grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                 base::GetReason(checked).reason + ": " + base::Message(checked));
    return true;  // Done; `callback` is for verifiers that go on.
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  [[nodiscard]] absl::Status Check(const tls::TlsCustomVerificationCheckRequest& request) const {
    const grpc::string_ref pem = request.peer_cert();
    if (rule_.nobody && pem.empty()) return absl::OkStatus();
    ONEPIECE_ASSIGN_OR_RETURN(const identity::Certificate certificate,
                              identity::Certificate::FromPem({pem.data(), pem.size()}));
    ONEPIECE_RETURN_IF_ERROR(identity::CheckTimes(certificate, clock_.WallNow()));
    ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject subject, certificate.GetSubject());
    return CheckPeer(rule_, subject);
  }

  const PeerRule rule_;
  const base::Clock& clock_;
};

/// What both ends set.
void Configure(tls::TlsCredentialsOptions& options, const TlsOptions& given, PeerRule rule,
               const base::Clock& clock) {
  const identity::IdentityFiles files = identity::FilesOf(given.folder, given.name);
  options.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.certificate, files.authorities,
      static_cast<unsigned>(given.reload.count())));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<SubjectVerifier>(std::move(rule), clock));
  // A peer is known by its subject. By default gRPC would compare the host's name for each call.
  options.set_check_call_host(false);
}

}  // namespace

void RequireTls13() {
  static std::once_flag once;
  std::call_once(once, [] { setenv("GRPC_SSL_CIPHER_SUITES", "PSK-AES128-GCM-SHA256", 1); });
}

void PollInBackground() { setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", 0); }

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsOptions& options, Clients clients, const base::Clock& clock) {
  RequireTls13();
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Identity own,
                            identity::LoadIdentity(options.folder, options.name, clock.WallNow()));
  if (!std::holds_alternative<identity::NodeSubject>(own.subject)) {
    return base::MakeError(absl::StatusCode::kPermissionDenied, "WRONG_ROLE",
                           identity::Describe(own.subject) + " is not a node, so it is no server");
  }
  const bool nobody = clients == Clients::kAlsoWithoutCertificate;
  tls::TlsServerCredentialsOptions server(nullptr);
  Configure(server, options,
            {.cluster = identity::ClusterOf(own.subject),
             .roles = options.roles,
             .principals = clients != Clients::kNodes,
             .nobody = nobody},
            clock);
  server.set_cert_request_type(nobody ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(server);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const TlsOptions& options, const base::Clock& clock) {
  RequireTls13();
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Identity own,
                            identity::LoadIdentity(options.folder, options.name, clock.WallNow()));
  tls::TlsChannelCredentialsOptions channel;
  Configure(channel, options, {.cluster = identity::ClusterOf(own.subject), .roles = options.roles},
            clock);
  return tls::TlsCredentials(channel);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeTokenCredentials(
    const std::string& authorities, const std::string& token, const std::string& cluster,
    const base::Clock& clock) {
  RequireTls13();
  ONEPIECE_RETURN_IF_ERROR(identity::ReadTrustFile(authorities).status());
  ONEPIECE_ASSIGN_OR_RETURN(const identity::BearerToken bearer,
                            identity::BearerToken::Parse(token));
  tls::TlsChannelCredentialsOptions channel;
  channel.set_certificate_provider(std::make_shared<tls::FileWatcherCertificateProvider>(
      authorities, static_cast<unsigned>(TlsOptions().reload.count())));
  channel.watch_root_certs();
  channel.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<SubjectVerifier>(
      PeerRule{.cluster = cluster, .roles = {}}, clock));
  channel.set_check_call_host(false);
  return grpc::CompositeChannelCredentials(tls::TlsCredentials(channel),
                                           grpc::AccessTokenCredentials(bearer.Format()));
}

void SetTlsArguments(grpc::ChannelArguments& arguments) {
  arguments.SetSslTargetNameOverride(identity::kNodeDnsName);
}

absl::StatusOr<identity::Subject> PeerOf(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> pem =
      context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (!context.IsPeerAuthenticated() || pem.empty()) {
    return base::MakeError(absl::StatusCode::kUnauthenticated, "NO_CERTIFICATE",
                           "the caller has no certificate");
  }
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::Certificate certificate,
      identity::Certificate::FromPem({pem.front().data(), pem.front().size()}));
  return certificate.GetSubject();
}

}  // namespace onepiece::rpc
