#include "cluster/identity/token.h"

#include <openssl/crypto.h>

#include "absl/strings/escaping.h"
#include "cluster/base/check.h"
#include "cluster/base/ids.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"

namespace onepiece::identity {
namespace {

constexpr std::string_view kJoinPrefix = "OP1", kBearerPrefix = "OPB1";
constexpr std::size_t kEncodedBytes = 43;  // 32 bytes in base64url without padding.
constexpr std::size_t kIdDigits = 16;

absl::Status BadToken(const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TOKEN", message);
}

absl::Status TokenRefused(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kUnauthenticated, reason, message);
}

std::string Encode(std::string_view bytes) {
  return absl::WebSafeBase64Escape(base::AbslView(bytes));
}

/// Decodes 32 bytes. `what` names them in messages.
absl::StatusOr<std::string> Decode(const std::string& what, std::string_view text) {
  if (text.size() != kEncodedBytes) {
    return BadToken(what + " has " + std::to_string(text.size()) + " characters instead of " +
                    std::to_string(kEncodedBytes) + ": copy the whole token");
  }
  std::string bytes;
  // The decoder also takes other alphabets, padding and stray bits, so two texts could be one
  // token.
  if (!absl::WebSafeBase64Unescape(base::AbslView(text), &bytes) || Encode(bytes) != text) {
    return BadToken(what + " has a character that does not belong there: copy the token again");
  }
  return bytes;
}

std::string RandomSecret() {
  std::string secret(kSecretBytes, '\0');
  base::FillRandom(secret.data(), secret.size());
  return secret;
}

// What both kinds of token need. Who does not know the secret learns nothing else.
template <typename Record>
absl::Status CheckToken(const Record& record, std::string_view secret, base::WallTime now) {
  if (!SecretMatches(secret, record.secret_hash))
    return TokenRefused("WRONG_TOKEN", "the cluster knows no such token");
  if (now >= record.expires) {
    return TokenRefused("TOKEN_EXPIRED", "the token expired on " + FormatTime(record.expires) +
                                             ": ask for a new one");
  }
  return absl::OkStatus();
}

}  // namespace

JoinToken JoinToken::Generate(std::string_view ca_hash) {
  ONEPIECE_CHECK(ca_hash.size() == kHashBytes);
  return {.ca_hash = std::string(ca_hash), .secret = RandomSecret()};
}

absl::StatusOr<JoinToken> JoinToken::Parse(std::string_view text) {
  if (text.starts_with(kBearerPrefix))
    return BadToken("this is a token for calls (OPB1…), not one to join a cluster (OP1…)");
  if (!text.starts_with(kJoinPrefix)) return BadToken("a join token begins with OP1");
  text.remove_prefix(kJoinPrefix.size());
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos)
    return BadToken("the token has no '.' between the CA's hash and the secret: copy it whole");
  JoinToken token;
  ONEPIECE_ASSIGN_OR_RETURN(token.ca_hash, Decode("the token's CA hash", text.substr(0, dot)));
  ONEPIECE_ASSIGN_OR_RETURN(token.secret, Decode("the token's secret", text.substr(dot + 1)));
  return token;
}

std::string JoinToken::Format() const {
  return std::string(kJoinPrefix) + Encode(ca_hash) + "." + Encode(secret);
}

BearerToken BearerToken::Generate() { return {.secret = RandomSecret()}; }

absl::StatusOr<BearerToken> BearerToken::Parse(std::string_view text) {
  if (!text.starts_with(kBearerPrefix)) {
    return BadToken(text.starts_with(kJoinPrefix)
                        ? "this is a token to join a cluster (OP1…), not one for calls (OPB1…)"
                        : "a token for calls begins with OPB1");
  }
  BearerToken token;
  ONEPIECE_ASSIGN_OR_RETURN(token.secret,
                            Decode("the token's secret", text.substr(kBearerPrefix.size())));
  return token;
}

std::string BearerToken::Format() const { return std::string(kBearerPrefix) + Encode(secret); }

std::string HashOfSecret(std::string_view secret) {
  base::Sha256 hash;
  hash.Update(secret);
  return hash.Finish();
}

std::string TokenId(std::string_view secret_hash) {
  return ToHex(secret_hash.substr(0, kIdDigits / 2));
}

bool SecretMatches(std::string_view secret, std::string_view secret_hash) {
  const std::string hash = HashOfSecret(secret);
  return hash.size() == secret_hash.size() &&
         CRYPTO_memcmp(hash.data(), secret_hash.data(), hash.size()) == 0;
}

absl::Status CheckJoinToken(const JoinTokenRecord& record, std::string_view secret,
                            base::WallTime now) {
  ONEPIECE_RETURN_IF_ERROR(CheckToken(record, secret, now));
  if (record.uses_left == 0)
    return TokenRefused("TOKEN_USED", "the token was used before: ask for a new one");
  return absl::OkStatus();
}

absl::Status CheckBearerToken(const BearerTokenRecord& record, std::string_view secret,
                              base::WallTime now) {
  return CheckToken(record, secret, now);
}

}  // namespace onepiece::identity
