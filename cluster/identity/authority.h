// The cluster's certificate authority: who has its key says who is in the cluster.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/private_key.h"
#include "cluster/identity/signing_request.h"
#include "cluster/identity/subject.h"

namespace onepiece::identity {

inline constexpr base::Duration kDay = std::chrono::hours(24);
inline constexpr base::Duration kAuthorityLife = 3650 * kDay;
inline constexpr base::Duration kCertificateLife = 90 * kDay;
inline constexpr base::Duration kMaxCertificateLife = 825 * kDay;
/// A certificate is valid from this long before it was made, for hosts whose clocks are behind.
inline constexpr base::Duration kBackdate = std::chrono::minutes(5);

/// A DNS name that every node's certificate has. Clients that know no onepiece:// URIs expect this
/// name from every node, whatever its address, and TLS servers find it in a client's SNI.
inline constexpr char kNodeDnsName[] = "node.onepiece.internal";

struct IssueOptions {
  /// More DNS names and IP addresses, for browsers and Prometheus. At most 32.
  std::vector<std::string> hosts;
  base::Duration life = kCertificateLife;
};

/// A CA's certificate and key.
///
/// A node's certificate is for both ends of a connection (extended key usage serverAuth and
/// clientAuth), a principal's for the client's end alone. Serial numbers have 128 random bits, so
/// any NodeManager that has the key issues certificates without asking the others.
///
/// Threading: thread-safe.
class Authority {
 public:
  /// Makes a CA with a new key. Its name has the cluster's id and the first 8 digits of its key's
  /// hash, so that two CAs of one cluster have different names.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_SUBJECT: `cluster` is no id).
  static absl::StatusOr<Authority> Create(const std::string& cluster, base::WallTime now);
  /// Takes a CA that was made before, here or with other tools.
  ///
  /// Errors: those of Certificate::FromPem() and PrivateKey::FromPem(), FAILED_PRECONDITION
  /// (NOT_A_CA, KEY_MISMATCH: the key is another certificate's).
  static absl::StatusOr<Authority> FromPem(std::string_view certificate_pem,
                                           std::string_view key_pem);

  [[nodiscard]] const Certificate& certificate() const { return certificate_; }
  [[nodiscard]] const PrivateKey& key() const { return key_; }

  /// Issues a certificate for the key of `request`. Nothing else of the request counts. It ends
  /// with the CA at the latest.
  ///
  /// Errors: INVALID_ARGUMENT (those of FormatSubject(); BAD_HOST; BAD_LIFE: not above 0 or more
  /// than kMaxCertificateLife), FAILED_PRECONDITION (CERTIFICATE_EXPIRED, NOT_VALID_YET: the CA
  /// itself is not valid now).
  [[nodiscard]] absl::StatusOr<Certificate> Issue(const SigningRequest& request,
                                                  const Subject& subject, base::WallTime now,
                                                  const IssueOptions& options = {}) const;

 private:
  Authority(Certificate certificate, PrivateKey key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}
  Certificate certificate_;
  PrivateKey key_;
};

}  // namespace onepiece::identity
