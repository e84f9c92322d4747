#include "cluster/base/frame_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "cluster/base/check.h"
#include "cluster/base/hmac.h"

namespace onepiece::base {
namespace {

constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kMaxCallBytes = std::size_t{1} << 30;  // OpenSSL counts in int.

const unsigned char* Octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

void FrameCipher::Free::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);
}

// OpenSSL's calls fail only when memory is exhausted, when the cipher is not compiled in, or when a
// tag is wrong, which is Check's answer.
FrameCipher::FrameCipher(std::string_view key, Direction direction)
    : encrypts_(direction == Direction::kSeal ? 1 : 0), key_(key), context_(EVP_CIPHER_CTX_new()) {
  ONEPIECE_CHECK(key.size() == kKeyBytes && context_ != nullptr);
  ONEPIECE_CHECK(EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, nullptr, nullptr,
                                   encrypts_) == 1);
  SetKey();
}

FrameCipher::~FrameCipher() { OPENSSL_cleanse(key_.data(), key_.size()); }

void FrameCipher::SetKey() {
  ONEPIECE_CHECK(EVP_CipherInit_ex(context_.get(), nullptr, nullptr,
                                   reinterpret_cast<const unsigned char*>(key_.data()), nullptr,
                                   encrypts_) == 1);
}

void FrameCipher::Begin() {
  if (next_frame_ != 0 && next_frame_ % kFramesPerKey == 0) {
    key_ = HmacSha256(key_, "the key of the next frames");
    SetKey();
  }
  std::array<unsigned char, kNonceBytes> nonce{};
  const std::uint64_t number = next_frame_++;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    nonce[i] = static_cast<unsigned char>(number >> (8 * i));
  }
  ONEPIECE_CHECK(
      EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), encrypts_) == 1);
}

void FrameCipher::Authenticate(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  ONEPIECE_CHECK(bytes.size() <= kMaxCallBytes);
  int done = 0;
  ONEPIECE_CHECK(EVP_CipherUpdate(context_.get(), nullptr, &done, Octets(bytes.data()),
                                  static_cast<int>(bytes.size())) == 1);
}

void FrameCipher::Crypt(std::span<const std::byte> in, std::byte* out) {
  if (in.empty()) return;
  ONEPIECE_CHECK(in.size() <= kMaxCallBytes);
  int done = 0;
  ONEPIECE_CHECK(EVP_CipherUpdate(context_.get(), reinterpret_cast<unsigned char*>(out), &done,
                                  Octets(in.data()), static_cast<int>(in.size())) == 1);
}

FrameCipher::Tag FrameCipher::Finish() {
  Tag tag;
  unsigned char nothing = 0;
  int done = 0;
  ONEPIECE_CHECK(EVP_CipherFinal_ex(context_.get(), &nothing, &done) == 1);
  ONEPIECE_CHECK(
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1);
  return tag;
}

bool FrameCipher::Check(const Tag& tag) {
  Tag expected = tag;
  ONEPIECE_CHECK(
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) == 1);
  unsigned char nothing = 0;
  int done = 0;
  return EVP_CipherFinal_ex(context_.get(), &nothing, &done) == 1;
}

}  // namespace onepiece::base
