// HMAC-SHA256 (RFC 2104, FIPS 198-1) and what goes with secrets.
#pragma once

#include <string>
#include <string_view>

namespace onepiece::base {

/// The 32 bytes of the code. With a secret key that is as good as random it also derives keys:
/// other messages give codes that tell nothing of each other (HKDF-Expand with one block).
///
/// Threading: thread-safe.
[[nodiscard]] std::string HmacSha256(std::string_view key, std::string_view message);

/// Whether two secrets are equal. The time it takes depends on the lengths alone.
[[nodiscard]] bool EqualSecrets(std::string_view a, std::string_view b);

}  // namespace onepiece::base
