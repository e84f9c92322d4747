// The private key of a certificate.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

struct evp_pkey_st;  // OpenSSL's; its headers stay in this folder's .cc files.

namespace onepiece::identity {

/// A private key: ECDSA on P-256 when we make it. A key that others made may be on another curve,
/// or RSA, when it is as strong (112 bits at least).
///
/// Threading: thread-safe to use; a moved-from key is only destroyed or assigned to.
class PrivateKey {
 public:
  /// Makes a new key.
  static PrivateKey Generate();
  /// Parses a PEM text, PKCS#8 or of the key's own kind. Passes over certificates in the same text.
  ///
  /// Errors: FAILED_PRECONDITION (HALF_WRITTEN, BAD_PEM, TOO_LARGE, ENCRYPTED_KEY, WEAK_KEY).
  static absl::StatusOr<PrivateKey> FromPem(std::string_view pem);

  /// PKCS#8, not encrypted. Only secret files and the replicated state's wrapping get it.
  [[nodiscard]] std::string ToPem() const;
  /// The 32 bytes of SHA-256 over the public key's SubjectPublicKeyInfo. A certificate for this key
  /// has the same.
  [[nodiscard]] std::string PublicKeyHash() const;
  /// OpenSSL's object, for this folder. The key keeps it.
  [[nodiscard]] evp_pkey_st* get() const { return key_.get(); }

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
  };
  explicit PrivateKey(evp_pkey_st* key) : key_(key) {}
  std::unique_ptr<evp_pkey_st, Free> key_;
};

}  // namespace onepiece::identity
