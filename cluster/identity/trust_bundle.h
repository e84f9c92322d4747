// Which certificates a node believes: those of the cluster's CAs that it knows.
//
// There is one CA, or two while the cluster changes from one to the next: nodes first learn to
// believe the new one as well, then get certificates of the new one, then forget the old one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/private_key.h"
#include "cluster/identity/subject.h"

namespace onepiece::identity {

/// Which end of a connection a certificate's owner is.
enum class Purpose { kServer, kClient };

/// The certificates of CAs. A value.
///
/// Threading: thread-safe to read.
class TrustBundle {
 public:
  /// More CAs than any rotation needs.
  static constexpr std::size_t kMaxAuthorities = 8;

  explicit TrustBundle(Certificate authority) : authorities_{std::move(authority)} {}
  /// Parses the certificates of a PEM text.
  ///
  /// Errors: those of Certificate::ListFromPem(), FAILED_PRECONDITION (NOT_A_CA; TOO_MANY).
  static absl::StatusOr<TrustBundle> FromPem(std::string_view pem);

  [[nodiscard]] std::string ToPem() const;
  [[nodiscard]] const std::vector<Certificate>& authorities() const { return authorities_; }
  /// Adds a CA that is not there yet; the rotation's first step.
  ///
  /// Errors: FAILED_PRECONDITION (NOT_A_CA, TOO_MANY).
  absl::Status Add(const Certificate& authority);
  /// Whether a CA has this PublicKeyHash().
  [[nodiscard]] bool Has(std::string_view public_key_hash) const;

  /// Checks that one of these CAs signed `certificate`, that both are valid at `now`, and that it
  /// is for this purpose. Returns who it speaks for. The caller compares the cluster, and decides
  /// what that subject may do. A certificate without an extended key usage is for no purpose.
  ///
  /// Errors: UNAUTHENTICATED (FOREIGN_CA, CERTIFICATE_EXPIRED, NOT_VALID_YET, WRONG_PURPOSE;
  /// CERTIFICATE_REFUSED: any other rule of X.509; those of Certificate::GetSubject()). The message
  /// says what to do.
  [[nodiscard]] absl::StatusOr<Subject> Verify(const Certificate& certificate, Purpose purpose,
                                               base::WallTime now) const;

 private:
  TrustBundle() = default;
  std::vector<Certificate> authorities_;
};

/// Errors: UNAUTHENTICATED (WRONG_CLUSTER).
absl::Status CheckCluster(const Subject& subject, std::string_view cluster);
/// Checks that `subject` is a node with one of `roles` at least.
///
/// Errors: PERMISSION_DENIED (WRONG_ROLE).
absl::Status CheckRole(const Subject& subject, RoleSet roles);
/// Errors: FAILED_PRECONDITION (KEY_MISMATCH).
absl::Status CheckKeyIsOf(const PrivateKey& key, const Certificate& certificate);
/// Checks a certificate's first and last moment against `now`.
///
/// Errors: UNAUTHENTICATED (CERTIFICATE_EXPIRED, NOT_VALID_YET).
absl::Status CheckTimes(const Certificate& certificate, base::WallTime now);
/// FAILED_PRECONDITION (NOT_A_CA).
absl::Status NotAnAuthority(const Certificate& certificate);

// All functions are thread-safe.

}  // namespace onepiece::identity
