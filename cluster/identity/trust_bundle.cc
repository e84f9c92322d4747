#include "cluster/identity/trust_bundle.h"

#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/identity/openssl.h"
#include "cluster/identity/secret_files.h"

namespace onepiece::identity {
namespace {

using StorePtr = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;

absl::Status Unauthenticated(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kUnauthenticated, reason, message);
}

/// The command that makes a new certificate in the place of this one. DIR is for people to fill in:
/// a certificate does not know where its files are.
std::string RenewCommand(const Certificate& certificate) {
  if (certificate.IsAuthority()) return "make a new CA and give all nodes certificates of it";
  const absl::StatusOr<Subject> subject = certificate.GetSubject();
  if (!subject.ok()) return "make a new one";
  if (const auto* node = std::get_if<NodeSubject>(&*subject)) {
    return "onepiece cert create-node " + node->id + " --role " + FormatRoles(node->roles) +
           " --out DIR";
  }
  const auto& principal = std::get<PrincipalSubject>(*subject);
  return "onepiece cert create-client " + principal.name + " --tenant " + principal.tenant +
         " --scope " + FormatScopes(principal.scopes) + " --out DIR";
}

std::string Called(const Certificate& certificate) {
  const absl::StatusOr<Subject> subject = certificate.GetSubject();
  if (subject.ok()) return "the certificate of " + Describe(*subject);
  return "the certificate " + certificate.SubjectName();
}

absl::Status ForeignAuthority(const Certificate& certificate,
                              const std::vector<Certificate>& known) {
  std::string names;
  for (const Certificate& authority : known)
    names += (names.empty() ? "" : " or ") + authority.SubjectName();
  return Unauthenticated("FOREIGN_CA", Called(certificate) + " is signed by " +
                                           certificate.IssuerName() + ", not by " + names +
                                           ": use one of this cluster's CA");
}

bool HasExtendedUsage(X509* certificate) {
  return (X509_get_extension_flags(certificate) & EXFLAG_XKUSAGE) != 0;
}

/// Translates what X509_verify_cert() said of the chain.
absl::Status ChainError(X509_STORE_CTX* context, const Certificate& certificate,
                        const std::vector<Certificate>& known) {
  const int error = X509_STORE_CTX_get_error(context);
  switch (error) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return ForeignAuthority(certificate, known);
    case X509_V_ERR_INVALID_PURPOSE:
      return Unauthenticated("WRONG_PURPOSE", Called(certificate) +
                                                  " is not for this end of a "
                                                  "connection");
    default:
      return Unauthenticated("CERTIFICATE_REFUSED",
                             Called(certificate) + ": " + X509_verify_cert_error_string(error));
  }
}

absl::Status VerifyChain(const Certificate& certificate, const std::vector<Certificate>& known,
                         Purpose purpose, base::WallTime now) {
  const StorePtr store(Must(X509_STORE_new()));
  for (const Certificate& authority : known)
    Must(X509_STORE_add_cert(store.get(), authority.get()));
  const StoreContextPtr context(Must(X509_STORE_CTX_new()));
  Must(X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr));
  X509_VERIFY_PARAM* const parameters = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(parameters, UnixSeconds(now));
  Must(X509_VERIFY_PARAM_set_purpose(
      parameters, purpose == Purpose::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT));
  X509_VERIFY_PARAM_set_auth_level(parameters, 2);  // 112 bits.
  const bool good = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (good) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  if (error == X509_V_ERR_CERT_HAS_EXPIRED || error == X509_V_ERR_CERT_NOT_YET_VALID) {
    // The times of its CA count too.
    X509* const which = X509_STORE_CTX_get_current_cert(context.get());
    for (const Certificate& authority : known)
      if (X509_cmp(authority.get(), which) == 0) return CheckTimes(authority, now);
    return CheckTimes(certificate, now);
  }
  return ChainError(context.get(), certificate, known);
}

}  // namespace

absl::StatusOr<TrustBundle> TrustBundle::FromPem(std::string_view pem) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<Certificate> all, Certificate::ListFromPem(pem));
  TrustBundle bundle;
  for (const Certificate& authority : all) ONEPIECE_RETURN_IF_ERROR(bundle.Add(authority));
  return bundle;
}

std::string TrustBundle::ToPem() const {
  std::string pem;
  for (const Certificate& authority : authorities_) pem += authority.ToPem();
  return pem;
}

absl::Status TrustBundle::Add(const Certificate& authority) {
  if (!authority.IsAuthority()) return NotAnAuthority(authority);
  const bool known = std::ranges::any_of(authorities_, [&](const Certificate& other) {
    return X509_cmp(other.get(), authority.get()) == 0;
  });
  if (known) return absl::OkStatus();
  if (authorities_.size() == kMaxAuthorities) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "TOO_MANY",
        "there are more than " + std::to_string(kMaxAuthorities) + " CAs: remove the old ones");
  }
  authorities_.push_back(authority);
  return absl::OkStatus();
}

bool TrustBundle::Has(std::string_view public_key_hash) const {
  return std::ranges::any_of(authorities_, [&](const Certificate& authority) {
    return authority.PublicKeyHash() == public_key_hash;
  });
}

absl::StatusOr<Subject> TrustBundle::Verify(const Certificate& certificate, Purpose purpose,
                                            base::WallTime now) const {
  ONEPIECE_RETURN_IF_ERROR(VerifyChain(certificate, authorities_, purpose, now));
  // OpenSSL lets a certificate that names no purpose be used for any, and a CA be a server.
  if (certificate.IsAuthority() || !HasExtendedUsage(certificate.get())) {
    return Unauthenticated("WRONG_PURPOSE", Called(certificate) + " is not for connections of TLS");
  }
  return certificate.GetSubject();
}

absl::Status CheckCluster(const Subject& subject, std::string_view cluster) {
  if (ClusterOf(subject) == cluster) return absl::OkStatus();
  return Unauthenticated("WRONG_CLUSTER",
                         Describe(subject) + " is not of cluster " + std::string(cluster));
}

absl::Status CheckRole(const Subject& subject, RoleSet roles) {
  const auto* node = std::get_if<NodeSubject>(&subject);
  if (node != nullptr && node->roles.HasAnyOf(roles)) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kPermissionDenied, "WRONG_ROLE",
                         Describe(subject) + " does not have the role " + FormatRoles(roles));
}

absl::Status CheckKeyIsOf(const PrivateKey& key, const Certificate& certificate) {
  if (key.PublicKeyHash() == certificate.PublicKeyHash()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "KEY_MISMATCH",
                         "the key is not that of " + Called(certificate) +
                             ": take the two files from one place, or make both anew");
}

absl::Status CheckTimes(const Certificate& certificate, base::WallTime now) {
  if (now > certificate.not_after()) {
    return Unauthenticated("CERTIFICATE_EXPIRED", Called(certificate) + " expired on " +
                                                      FormatTime(certificate.not_after()) + ": " +
                                                      RenewCommand(certificate));
  }
  if (now < certificate.not_before()) {
    return Unauthenticated("NOT_VALID_YET", Called(certificate) + " is valid from " +
                                                FormatTime(certificate.not_before()) +
                                                " on, and here it is " + FormatTime(now) +
                                                ": set this host's clock");
  }
  return absl::OkStatus();
}

absl::Status NotAnAuthority(const Certificate& certificate) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_A_CA",
                         Called(certificate) + " is not that of a CA");
}

}  // namespace onepiece::identity
