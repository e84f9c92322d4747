// Secrets under a key: the CA's private key in the replicated state, and what a backup keeps behind
// a passphrase. AES-256-GCM with a random nonce, so whoever lacks the key neither reads nor changes
// what is sealed.
//
// A sealed text is a version byte (1), 12 bytes of nonce, the ciphertext, and 16 bytes of tag. The
// nonce is random, so a key seals 2^32 texts at most; a seal key seals a handful.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/identity/authority.h"

namespace onepiece::identity {

inline constexpr std::size_t kSealKeyBytes = 32;
/// The least salt that WrapKeyOf() takes.
inline constexpr std::size_t kWrapSaltBytes = 16;
/// The context under which a backup holds the seal key.
inline constexpr char kBackupSealContext[] = "seal key of a backup";
/// The NodeManagers' seal key in an identity folder: 64 hexadecimal digits.
inline constexpr char kSealKeyFile[] = "seal.key";

/// Makes a new key: kSealKeyBytes random bytes.
std::string MakeSealKey();

/// Seals `plaintext`. `context` says what it is ("authority pirates"); only who names the same
/// context unseals it, so one sealed text cannot stand in for another.
///
/// REQUIRES: `key` has kSealKeyBytes, `plaintext` and `context` less than 1 GiB.
std::string Seal(std::string_view key, std::string_view plaintext, std::string_view context);

/// Returns what was sealed.
///
/// REQUIRES: `key` has kSealKeyBytes.
/// Errors: FAILED_PRECONDITION (BAD_SEAL: another key, another context, or changed bytes; nobody
/// can tell which).
absl::StatusOr<std::string> Unseal(std::string_view key, std::string_view sealed,
                                   std::string_view context);

/// Seals the key of a CA. It opens beside its own certificate only.
///
/// REQUIRES: `key` has kSealKeyBytes.
std::string SealAuthority(std::string_view key, const Authority& authority);
/// Makes the CA of its certificate and its sealed key.
///
/// REQUIRES: `key` has kSealKeyBytes.
/// Errors: those of Unseal() and Authority::FromPem().
absl::StatusOr<Authority> OpenAuthority(std::string_view key, std::string_view certificate_pem,
                                        std::string_view sealed_key);

/// The file of the seal key in an identity folder.
std::string SealKeyPath(const std::string& folder);
/// Errors: those of ReadSecretFile(), FAILED_PRECONDITION (HALF_WRITTEN, BAD_SEAL_KEY).
absl::StatusOr<std::string> ReadSealKeyFile(const std::string& folder);
/// Makes the folder too. Writes nothing when the file has this key already.
///
/// REQUIRES: `key` has kSealKeyBytes.
/// Blocking: waits for the disk.
/// Errors: those of EnsureSecretFolder() and WriteSecretFile(), ALREADY_EXISTS (OTHER_SEAL_KEY: the
/// file has another key, which something may be sealed with).
absl::Status WriteSealKeyFile(const std::string& folder, std::string_view key);

/// Makes a key of a passphrase that people thought up: scrypt with N = 2^15, r = 8, p = 1, which
/// takes 32 MiB and about 0.1 s.
///
/// Errors: INVALID_ARGUMENT (EMPTY_PASSPHRASE; BAD_SALT: less than kWrapSaltBytes).
absl::StatusOr<std::string> WrapKeyOf(std::string_view passphrase, std::string_view salt);

/// Reads the passphrase that stands in a file: other users see the arguments of a program. Line
/// ends after it do not count.
///
/// Errors: those of ReadSecretFile().
absl::StatusOr<std::string> ReadPassphraseFile(const std::string& path);

// All functions are thread-safe.

}  // namespace onepiece::identity
