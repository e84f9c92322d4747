// How a host that has no certificate yet knows that it talks to the cluster of its join token.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "cluster/base/clock.h"

namespace grpc {
class ChannelCredentials;
}

namespace onepiece::rpc {

/// Credentials of channels to NodeManagers whose CA has a given public key. A server sends its
/// certificate together with its CA's. The CA must have the key that the token names, and must have
/// signed the server's certificate, before a byte of a request is sent. The client shows nothing.
///
/// Ownership: borrows the clock, which outlives all connections.
/// Threading: thread-safe.
class JoinCredentials {
 public:
  /// `ca_hash` is that of the token (identity::JoinToken).
  JoinCredentials(std::string ca_hash, const base::Clock& clock);

  /// The channels take SetTlsArguments() too, as MakeChannel() does.
  [[nodiscard]] std::shared_ptr<grpc::ChannelCredentials> credentials() const;
  /// Why a server was refused: what the first call's UNAVAILABLE does not tell. OK: none was.
  ///
  /// Errors: UNAUTHENTICATED (FOREIGN_CA, CERTIFICATE_EXPIRED, NOT_VALID_YET, and the others of
  /// TrustBundle::Verify()), PERMISSION_DENIED (WRONG_ROLE: it is no NodeManager).
  [[nodiscard]] absl::Status refusal() const;
  /// Its stop is requested at the first refusal, so that nobody tries again.
  [[nodiscard]] std::stop_token refused() const;

 private:
  class Verifier;
  struct State;
  const std::shared_ptr<State> state_;  // The verifier, which gRPC owns, shares it.
};

}  // namespace onepiece::rpc
