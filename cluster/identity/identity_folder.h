// The files of one identity in a folder:
//
//   NAME.key   the private key
//   NAME.pem   the certificate for it
//   ca.pem     the CAs whose certificates this one believes
//   ca.key     the CA's key; only where certificates are made
//
// NAME is "node" for a node, "admin" or the principal's name for people and programs. All are
// secret files (secret_files.h), since nobody but the owner has use for them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/private_key.h"
#include "cluster/identity/trust_bundle.h"

namespace onepiece::identity {

/// Where the files of an identity are.
struct IdentityFiles {
  std::string key;
  std::string certificate;
  std::string authorities;
};
IdentityFiles FilesOf(const std::string& folder, const std::string& name);

/// Checks the base name of an identity's files.
///
/// Errors: INVALID_ARGUMENT (RESERVED_NAME: "ca" names the files of the CA).
absl::Status CheckIdentityName(const std::string& name);

/// The base name of a CA's files.
inline constexpr char kAuthorityName[] = "ca";
/// That of a node's.
inline constexpr char kNodeName[] = "node";
/// That of the identity that a new cluster makes for its people. It has scope admin.
inline constexpr char kAdminName[] = "admin";

/// What a process shows of itself, and whom it believes.
struct Identity {
  PrivateKey key;
  Certificate certificate;
  TrustBundle authorities;
  Subject subject;
};

/// Reads an identity and checks it whole: the folder's and the files' modes, that the key is that
/// of the certificate, that one of the CAs signed it and that it is valid at `now`.
///
/// Blocking: reads three files.
/// Errors: those of CheckSecretFolder(), ReadSecretFile(), CheckKeyIsOf() and
/// TrustBundle::Verify(), with the file before the message.
absl::StatusOr<Identity> LoadIdentity(const std::string& folder, const std::string& name,
                                      base::WallTime now);

/// Writes the three files. The certificate comes last, so a folder with a certificate is whole.
/// A reader that sees a new key beside an old certificate is told KEY_MISMATCH; a renewal that
/// keeps the key has no such moment.
///
/// Blocking: waits for the disk.
/// Errors: those of CheckIdentityName(), CheckKeyIsOf(), EnsureSecretFolder() and
/// WriteSecretFile().
absl::Status SaveIdentity(const std::string& folder, const std::string& name, const PrivateKey& key,
                          const Certificate& certificate, const TrustBundle& authorities);

/// Makes an identity with a new key, whose certificate `authority` signs, and writes its files. It
/// believes that CA alone. Returns the certificate.
///
/// Blocking: waits for the disk.
/// Errors: those of Authority::Issue() and SaveIdentity().
absl::StatusOr<Certificate> MakeIdentity(const std::string& folder, const std::string& name,
                                         const Subject& subject, const Authority& authority,
                                         base::WallTime now, const IssueOptions& options = {});

/// Reads a CA's certificate and key.
///
/// Errors: those of CheckSecretFolder(), ReadSecretFile() and Authority::FromPem().
absl::StatusOr<Authority> LoadAuthority(const std::string& folder);
/// Writes a new CA's files.
///
/// Errors: ALREADY_EXISTS (CA_EXISTS: it would replace another), and those of EnsureSecretFolder()
/// and WriteSecretFile().
absl::Status SaveAuthority(const std::string& folder, const Authority& authority);

/// Writes the key of a CA whose certificate the folder has, for a node that signs.
///
/// Errors: those of EnsureSecretFolder() and WriteSecretFile().
absl::Status SaveAuthorityKey(const std::string& folder, const Authority& authority);

/// Reads what a file of an identity holds, with the file's name before each error's message.
///
/// Errors: those of ReadSecretFile() and of FromPem().
absl::StatusOr<PrivateKey> ReadKeyFile(const std::string& path);
absl::StatusOr<Certificate> ReadCertificateFile(const std::string& path);
absl::StatusOr<TrustBundle> ReadTrustFile(const std::string& path);

// All functions are thread-safe.

}  // namespace onepiece::identity
