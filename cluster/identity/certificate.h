// An X.509 certificate, as it is. Whether anybody should trust it: trust_bundle.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/identity/subject.h"

struct x509_st;  // OpenSSL's; its headers stay in this folder's .cc files.

namespace onepiece::identity {

/// A parsed certificate. A value that never changes; copies share OpenSSL's object.
///
/// Threading: thread-safe.
class Certificate {
 public:
  /// Parses the one certificate of a PEM text. Passes over other things in it.
  ///
  /// Errors: FAILED_PRECONDITION (HALF_WRITTEN, BAD_PEM, TOO_LARGE).
  static absl::StatusOr<Certificate> FromPem(std::string_view pem);
  /// Parses all certificates of a PEM text, one at least.
  ///
  /// Errors: those of FromPem().
  static absl::StatusOr<std::vector<Certificate>> ListFromPem(std::string_view pem);
  /// Takes over an object of OpenSSL's that this folder made.
  explicit Certificate(x509_st* certificate);

  [[nodiscard]] std::string ToPem() const;
  /// The first and the last moment at which it is valid. Times that base::WallTime cannot hold
  /// become its ends.
  [[nodiscard]] base::WallTime not_before() const { return not_before_; }
  [[nodiscard]] base::WallTime not_after() const { return not_after_; }
  /// When its owner should have a new one: after two thirds of its life.
  [[nodiscard]] base::WallTime RenewalTime() const;
  /// Lower-case hexadecimal digits.
  [[nodiscard]] std::string SerialNumber() const;
  /// "O=pirates, CN=OnePiece CA 0123abcd".
  [[nodiscard]] std::string SubjectName() const;
  [[nodiscard]] std::string IssuerName() const;
  /// The O of SubjectName(), in which our authorities name their cluster; empty when there is none.
  [[nodiscard]] std::string Organization() const;
  /// Whether it may sign other certificates.
  [[nodiscard]] bool IsAuthority() const;
  /// The DNS names and IP addresses that it is for.
  [[nodiscard]] std::vector<std::string> Hosts() const;
  /// Who it speaks for. This alone proves nothing: see TrustBundle::Verify().
  ///
  /// Errors: UNAUTHENTICATED (NO_SUBJECT: it has no URI of ours, or several; BAD_SUBJECT, BAD_ROLE,
  /// BAD_SCOPE).
  [[nodiscard]] absl::StatusOr<Subject> GetSubject() const;
  /// The 32 bytes of SHA-256 over the SubjectPublicKeyInfo. It stays when a certificate is renewed
  /// with its key. A join token carries that of the CA.
  [[nodiscard]] std::string PublicKeyHash() const;
  /// SHA-256 of the whole certificate as lower-case hexadecimal digits.
  [[nodiscard]] std::string Fingerprint() const;
  /// OpenSSL's object, for this folder. The certificate keeps it.
  [[nodiscard]] x509_st* get() const { return certificate_.get(); }

 private:
  std::shared_ptr<x509_st> certificate_;
  base::WallTime not_before_, not_after_;
};

/// "2026-11-26T16:45:00Z".
///
/// Threading: thread-safe.
std::string FormatTime(base::WallTime time);

/// Lower-case hexadecimal digits.
///
/// Threading: thread-safe.
std::string ToHex(std::string_view bytes);

}  // namespace onepiece::identity
