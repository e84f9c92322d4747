#include "cluster/base/sha256.h"

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::base {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

// OpenSSL's calls fail only when memory is exhausted or SHA-256 is not compiled in; no caller can
// go on without its hash.
Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  ONEPIECE_CHECK(context_ != nullptr);
  ONEPIECE_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Update(std::span<const std::byte> bytes) {
  ONEPIECE_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

void Sha256::Update(std::string_view bytes) { Update(std::as_bytes(std::span(bytes))); }

std::string Sha256::Finish() {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int size = 0;
  ONEPIECE_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                    &size) == 1);
  digest.resize(size);
  return digest;
}

std::string Sha256::FinishHex() { return absl::BytesToHexString(AbslView(Finish())); }

std::string Sha256Digest(std::span<const std::byte> bytes) {
  Sha256 sha256;
  sha256.Update(bytes);
  return sha256.Finish();
}

std::string Sha256Hex(std::span<const std::byte> bytes) {
  Sha256 sha256;
  sha256.Update(bytes);
  return sha256.FinishHex();
}

std::string Sha256Hex(std::string_view bytes) { return Sha256Hex(std::as_bytes(std::span(bytes))); }

}  // namespace onepiece::base
