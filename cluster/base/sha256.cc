#include "cluster/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "cluster/base/check.h"

namespace onepiece::client {
namespace {
EVP_MD_CTX* Context(void* context) { return static_cast<EVP_MD_CTX*>(context); }
}  // namespace

void Sha256::Free::operator()(void* context) const { EVP_MD_CTX_free(Context(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  ONEPIECE_CHECK(context_ != nullptr);
  ONEPIECE_CHECK(EVP_DigestInit_ex(Context(context_.get()), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Update(std::string_view bytes) {
  ONEPIECE_CHECK(EVP_DigestUpdate(Context(context_.get()), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::FinishHex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  ONEPIECE_CHECK(EVP_DigestFinal_ex(Context(context_.get()), digest.data(), &size) == 1);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text.push_back(kHex[digest[i] >> 4]);
    text.push_back(kHex[digest[i] & 15]);
  }
  return text;
}

}  // namespace onepiece::client
