#include "cluster/base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "cluster/base/check.h"

namespace onepiece::base {

std::string HmacSha256(std::string_view key, std::string_view message) {
  std::string code(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  // It fails only when memory is exhausted or SHA-256 is not compiled in.
  ONEPIECE_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                      reinterpret_cast<unsigned char*>(code.data()), &size) != nullptr);
  code.resize(size);
  return code;
}

bool EqualSecrets(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace onepiece::base
