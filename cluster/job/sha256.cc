#include "cluster/job/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "cluster/base/check.h"

namespace onepiece::job {

std::string Sha256Hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int digest_bytes = 0;
  const int ok =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &digest_bytes, EVP_sha256(), nullptr);
  ONEPIECE_CHECK(ok == 1);
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest_bytes);
  for (unsigned int i = 0; i < digest_bytes; ++i) {
    text.push_back(kHex[digest[i] >> 4]);
    text.push_back(kHex[digest[i] & 0x0f]);
  }
  return text;
}

}  // namespace onepiece::job
