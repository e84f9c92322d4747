#include "cluster/job/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::job {

std::string Sha256(std::span<const std::byte> bytes) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int digest_bytes = 0;
  const int ok =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 &digest_bytes, EVP_sha256(), nullptr);
  ONEPIECE_CHECK(ok == 1);
  digest.resize(digest_bytes);
  return digest;
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  return absl::BytesToHexString(base::AbslView(Sha256(bytes)));
}

}  // namespace onepiece::job
