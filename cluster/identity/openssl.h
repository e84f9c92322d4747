// OpenSSL's objects with an owner, and its errors as text. Only this folder's .cc files include it.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/base/check.h"
#include "cluster/base/clock.h"

namespace onepiece::identity {

template <auto Free>
struct Freer {
  template <typename Object>
  void operator()(Object* object) const {
    Free(object);
  }
};

inline void FreeExtensions(STACK_OF(X509_EXTENSION) * extensions) {
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
}
inline void FreeNames(GENERAL_NAMES* names) { GENERAL_NAMES_free(names); }

using BioPtr = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Freer<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, Freer<X509_REQ_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freer<FreeNames>>;
using BignumPtr = std::unique_ptr<BIGNUM, Freer<BN_free>>;
using TimePtr = std::unique_ptr<ASN1_TIME, Freer<ASN1_TIME_free>>;

/// Dies when `made` is null or not positive. For calls that fail only without memory, or by a bug
/// of ours; never for what others sent.
template <typename Result>
Result Must(Result made) {
  if constexpr (std::is_pointer_v<Result>) {
    ONEPIECE_CHECK(made != nullptr);
  } else {
    ONEPIECE_CHECK(made > 0);
  }
  return made;
}

/// Takes the errors of this thread off OpenSSL's queue and returns the last one's text. What stayed
/// there would look like an error of the next TLS connection.
inline std::string TakeOpenSslError() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* const reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : "malformed";
}

/// A view of `bytes` that OpenSSL reads. The bytes outlive it.
inline BioPtr ReadingBio(std::string_view bytes) {
  return BioPtr(Must(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size()))));
}

inline std::string BytesOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size > 0 ? std::string(data, static_cast<std::size_t>(size)) : std::string();
}

/// Calls `write` with a BIO in memory and returns what it wrote.
template <typename Write>
std::string Written(Write write) {
  const BioPtr bio(Must(BIO_new(BIO_s_mem())));
  Must(write(bio.get()));
  return BytesOf(bio.get());
}

/// The 32 bytes of SHA-256 over a public key with its algorithm (SubjectPublicKeyInfo).
inline std::string HashOfPublicKey(X509_PUBKEY* key) {
  unsigned char* der = nullptr;
  const int size = Must(i2d_X509_PUBKEY(key, &der));
  std::string hash(32, '\0');
  Must(EVP_Digest(der, static_cast<std::size_t>(size),
                  reinterpret_cast<unsigned char*>(hash.data()), nullptr, EVP_sha256(), nullptr));
  OPENSSL_free(der);
  return hash;
}

/// Seconds since 1970, rounded down.
inline std::time_t UnixSeconds(base::WallTime time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}

}  // namespace onepiece::identity
