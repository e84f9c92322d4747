#include "cluster/rpc/join_credentials.h"

#include <algorithm>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/trust_bundle.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace onepiece::rpc {

struct JoinCredentials::State {
  State(std::string hash, const base::Clock& from) : ca_hash(std::move(hash)), clock(from) {}
  absl::Status Check(std::string_view chain_pem) const {
    const auto chain = identity::Certificate::ListFromPem(chain_pem);
    if (!chain.ok()) return chain.status();
    const auto authority = std::ranges::find_if(*chain, [&](const identity::Certificate& one) {
      return one.IsAuthority() && one.PublicKeyHash() == ca_hash;
    });
    if (authority == chain->end()) {
      return base::MakeError(
          absl::StatusCode::kUnauthenticated, "FOREIGN_CA",
          "the server's certificate is not of the CA that the token names; nothing was sent. The "
          "address or the token is of another cluster, or the cluster has a new CA since the token "
          "was made, or somebody listens in between");
    }
    // What else the server sent signs nothing: a CA of ours makes no CAs below itself.
    ONEPIECE_ASSIGN_OR_RETURN(
        const identity::Subject server,
        identity::TrustBundle(*authority)
            .Verify(chain->front(), identity::Purpose::kServer, clock.WallNow()));
    return identity::CheckRole(server, {identity::Role::kNodeManager});
  }

  const std::string ca_hash;
  const base::Clock& clock;
  std::stop_source refused;
  mutable base::Mutex mutex;
  absl::Status refusal ABSL_GUARDED_BY(mutex);
};

/// Threading: thread-safe; gRPC calls it from its threads.
class JoinCredentials::Verifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit Verifier(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const grpc::string_ref chain = request->peer_cert_full_chain();
    const absl::Status checked = state_->Check({chain.data(), chain.size()});
    *status = grpc::Status::OK;
    if (!checked.ok()) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, base::Message(checked));
      {
        const base::MutexLock lock(state_->mutex);
        if (state_->refusal.ok()) state_->refusal = checked;
      }
      state_->refused.request_stop();
    }
    return true;  // Done; `callback` is for verifiers that go on.
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::shared_ptr<State> state_;
};

JoinCredentials::JoinCredentials(std::string ca_hash, const base::Clock& clock)
    : state_(std::make_shared<State>(std::move(ca_hash), clock)) {}

std::shared_ptr<grpc::ChannelCredentials> JoinCredentials::credentials() const {
  namespace tls = grpc::experimental;
  RequireTls13();
  tls::TlsChannelCredentialsOptions options;
  // There is no CA to give to OpenSSL. The verifier checks the signature, with the server's own CA,
  // once that has turned out to be the right one.
  options.set_verify_server_certs(false);
  options.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<Verifier>(state_));
  options.set_check_call_host(false);
  return tls::TlsCredentials(options);
}

absl::Status JoinCredentials::refusal() const {
  const base::MutexLock lock(state_->mutex);
  return state_->refusal;
}

std::stop_token JoinCredentials::refused() const { return state_->refused.get_token(); }

}  // namespace onepiece::rpc
