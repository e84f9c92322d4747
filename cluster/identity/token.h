// Secrets that people carry: join tokens, with which a host enters a cluster, and bearer tokens,
// with which a program calls one.
//
//   OP1CAHASH.SECRET   a join token: the hash of the CA's public key, and a secret
//   OPB1SECRET         a bearer token
//
// Both parts are 32 bytes in base64url (43 characters, no padding). The secret has 256 random bits,
// so nobody guesses it and its SHA-256 may be stored as it is: a slow hash defends secrets that
// people think up. A joiner compares the CA's hash with the server's certificate before it sends
// the secret.
//
// Expiry is wall time, as a certificate's is: nothing else about a credential would mean the same
// to people, to all replicas and after a restart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/identity/role.h"
#include "cluster/identity/scope.h"

namespace onepiece::identity {

inline constexpr std::size_t kSecretBytes = 32, kHashBytes = 32;
inline constexpr base::Duration kJoinTokenLife = std::chrono::hours(1);

/// What a joining host is given.
struct JoinToken {
  std::string ca_hash;  ///< Certificate::PublicKeyHash() of the cluster's CA.
  std::string secret;   ///< kSecretBytes.

  /// Makes a token with a new secret. REQUIRES: `ca_hash` has kHashBytes.
  static JoinToken Generate(std::string_view ca_hash);
  /// Errors: INVALID_ARGUMENT (BAD_TOKEN; the message says which part is wrong and never repeats
  /// it).
  static absl::StatusOr<JoinToken> Parse(std::string_view text);
  [[nodiscard]] std::string Format() const;
  bool operator==(const JoinToken&) const = default;
};

/// What a program sends with each call.
struct BearerToken {
  std::string secret;  ///< kSecretBytes.

  static BearerToken Generate();
  /// Errors: as of JoinToken::Parse().
  static absl::StatusOr<BearerToken> Parse(std::string_view text);
  [[nodiscard]] std::string Format() const;
  bool operator==(const BearerToken&) const = default;
};

/// What is stored of a token's secret: its SHA-256, kHashBytes.
std::string HashOfSecret(std::string_view secret);
/// The id under which a token is listed and revoked: the first 16 hexadecimal digits of its stored
/// hash.
std::string TokenId(std::string_view secret_hash);
/// Compares in a time that does not depend on where the two differ.
bool SecretMatches(std::string_view secret, std::string_view secret_hash);

/// What the cluster keeps of a join token.
struct JoinTokenRecord {
  std::string secret_hash;
  RoleSet roles;  ///< The joiner's certificate gets these.
  /// The token lets in so many more. 0: it is used up.
  std::uint32_t uses_left = 1;
  base::WallTime expires;
};

/// What the cluster keeps of a bearer token.
struct BearerTokenRecord {
  std::string secret_hash;
  std::string name;  ///< The principal's.
  std::string tenant;
  ScopeSet scopes;
  base::WallTime expires;
};

/// Checks that `secret` is the record's, that the token is not expired at `now`, and that a use is
/// left. The caller counts the use, in the replicated state.
///
/// Errors: UNAUTHENTICATED (WRONG_TOKEN, TOKEN_EXPIRED, TOKEN_USED). Who does not know the secret
/// learns WRONG_TOKEN only.
absl::Status CheckJoinToken(const JoinTokenRecord& record, std::string_view secret,
                            base::WallTime now);
/// Errors: UNAUTHENTICATED (WRONG_TOKEN, TOKEN_EXPIRED).
absl::Status CheckBearerToken(const BearerTokenRecord& record, std::string_view secret,
                              base::WallTime now);

// All functions are thread-safe.

}  // namespace onepiece::identity
