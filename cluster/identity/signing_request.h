// A request for a certificate (PKCS#10): a public key, and the proof that its sender has the
// private one. Who the certificate is for, the authority decides, not the request.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/identity/private_key.h"

struct X509_req_st;  // OpenSSL's; its headers stay in this folder's .cc files.

namespace onepiece::identity {

/// A request whose signature was checked. A value that never changes; copies share OpenSSL's
/// object.
///
/// Threading: thread-safe.
class SigningRequest {
 public:
  static SigningRequest Make(const PrivateKey& key);
  /// Parses and checks a request that somebody sent.
  ///
  /// Errors: FAILED_PRECONDITION (HALF_WRITTEN, BAD_PEM, TOO_LARGE, WEAK_KEY), UNAUTHENTICATED
  /// (NOT_ITS_KEY: who sent it does not have the private key).
  static absl::StatusOr<SigningRequest> FromPem(std::string_view pem);

  [[nodiscard]] std::string ToPem() const;
  [[nodiscard]] std::string PublicKeyHash() const;
  /// OpenSSL's object, for this folder. The request keeps it.
  [[nodiscard]] X509_req_st* get() const { return request_.get(); }

 private:
  explicit SigningRequest(X509_req_st* request);
  std::shared_ptr<X509_req_st> request_;
};

}  // namespace onepiece::identity
