#include "cluster/identity/seal.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "cluster/base/check.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/identity/certificate.h"
#include "cluster/identity/openssl.h"
#include "cluster/identity/secret_files.h"

namespace onepiece::identity {
namespace {

using CipherPtr = std::unique_ptr<EVP_CIPHER_CTX, Freer<EVP_CIPHER_CTX_free>>;

constexpr char kSealVersion = 1;
constexpr std::size_t kNonceBytes = 12, kTagBytes = 16, kHeadBytes = 1 + kNonceBytes;
constexpr std::size_t kMaxSealBytes = 1 << 30;
constexpr std::uint64_t kScryptN = 1 << 15, kScryptR = 8, kScryptP = 1;
// scrypt needs 128 * N * r bytes and a little; OpenSSL refuses 32 MiB unless it is told more.
constexpr std::uint64_t kScryptMemory = 64 << 20;

unsigned char* Bytes(char* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* Bytes(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// The version byte is sealed with the context, so it cannot be changed either.
std::string AddedData(std::string_view context) {
  return std::string(1, kSealVersion) + std::string(context);
}

absl::Status BadSeal() {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "BAD_SEAL",
                         "this was sealed with another key or for another purpose, or is damaged");
}

absl::Status BadSealKey(const std::string& path) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "BAD_SEAL_KEY",
                         path + " is no seal key: it must be 64 hexadecimal digits",
                         {{"path", path}});
}

std::string AuthorityContext(const Certificate& certificate) {
  return "authority " + certificate.Fingerprint();
}

bool IsHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

std::string MakeSealKey() {
  std::string key(kSealKeyBytes, '\0');
  base::FillRandom(key.data(), key.size());
  return key;
}

std::string Seal(std::string_view key, std::string_view plaintext, std::string_view context) {
  ONEPIECE_CHECK(key.size() == kSealKeyBytes);
  ONEPIECE_CHECK(plaintext.size() < kMaxSealBytes && context.size() < kMaxSealBytes);
  std::string sealed(kHeadBytes + plaintext.size() + kTagBytes, '\0');
  sealed[0] = kSealVersion;
  base::FillRandom(sealed.data() + 1, kNonceBytes);
  const std::string added = AddedData(context);
  const CipherPtr cipher(Must(EVP_CIPHER_CTX_new()));
  Must(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, Bytes(key),
                          Bytes(sealed.data() + 1)));
  int size = 0;
  Must(EVP_EncryptUpdate(cipher.get(), nullptr, &size, Bytes(added),
                         static_cast<int>(added.size())));
  Must(EVP_EncryptUpdate(cipher.get(), Bytes(sealed.data() + kHeadBytes), &size, Bytes(plaintext),
                         static_cast<int>(plaintext.size())));
  char* const tag = sealed.data() + kHeadBytes + plaintext.size();
  Must(EVP_EncryptFinal_ex(cipher.get(), Bytes(tag), &size));
  Must(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag));
  return sealed;
}

absl::StatusOr<std::string> Unseal(std::string_view key, std::string_view sealed,
                                   std::string_view context) {
  ONEPIECE_CHECK(key.size() == kSealKeyBytes);
  if (sealed.size() < kHeadBytes + kTagBytes || sealed.size() > kMaxSealBytes ||
      sealed[0] != kSealVersion)
    return BadSeal();
  std::string plaintext(sealed.size() - kHeadBytes - kTagBytes, '\0');
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  const std::string added = AddedData(context);
  const CipherPtr cipher(Must(EVP_CIPHER_CTX_new()));
  Must(EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, Bytes(key),
                          Bytes(sealed.substr(1))));
  int size = 0;
  Must(EVP_DecryptUpdate(cipher.get(), nullptr, &size, Bytes(added),
                         static_cast<int>(added.size())));
  Must(EVP_DecryptUpdate(cipher.get(), Bytes(plaintext.data()), &size,
                         Bytes(sealed.substr(kHeadBytes)), static_cast<int>(plaintext.size())));
  Must(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()));
  // Only this call says whether the bytes above are what was sealed.
  if (EVP_DecryptFinal_ex(cipher.get(), Bytes(plaintext.data() + plaintext.size()), &size) <= 0) {
    ERR_clear_error();
    return BadSeal();
  }
  return plaintext;
}

std::string SealAuthority(std::string_view key, const Authority& authority) {
  return Seal(key, authority.key().ToPem(), AuthorityContext(authority.certificate()));
}

absl::StatusOr<Authority> OpenAuthority(std::string_view key, std::string_view certificate_pem,
                                        std::string_view sealed_key) {
  ONEPIECE_ASSIGN_OR_RETURN(const Certificate certificate, Certificate::FromPem(certificate_pem));
  ONEPIECE_ASSIGN_OR_RETURN(const std::string key_pem,
                            Unseal(key, sealed_key, AuthorityContext(certificate)));
  return Authority::FromPem(certificate_pem, key_pem);
}

std::string SealKeyPath(const std::string& folder) { return folder + "/" + kSealKeyFile; }

absl::StatusOr<std::string> ReadSealKeyFile(const std::string& folder) {
  const std::string path = SealKeyPath(folder);
  ONEPIECE_ASSIGN_OR_RETURN(std::string text, ReadSecretFile(path));
  if (text.ends_with('\n')) text.pop_back();
  if (text.size() != 2 * kSealKeyBytes || !std::ranges::all_of(text, IsHexDigit))
    return BadSealKey(path);
  return absl::HexStringToBytes(text);
}

absl::Status WriteSealKeyFile(const std::string& folder, std::string_view key) {
  ONEPIECE_CHECK(key.size() == kSealKeyBytes);
  ONEPIECE_RETURN_IF_ERROR(EnsureSecretFolder(folder));
  const absl::StatusOr<std::string> present = ReadSealKeyFile(folder);
  if (present.ok() && *present == key) return absl::OkStatus();
  if (present.ok()) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "OTHER_SEAL_KEY",
                           SealKeyPath(folder) +
                               " has another seal key: move it away if nothing "
                               "is sealed with it",
                           {{"path", SealKeyPath(folder)}});
  }
  if (present.status().code() != absl::StatusCode::kNotFound) return present.status();
  return WriteSecretFile(SealKeyPath(folder), ToHex(key) + "\n");
}

absl::StatusOr<std::string> WrapKeyOf(std::string_view passphrase, std::string_view salt) {
  if (passphrase.empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "EMPTY_PASSPHRASE",
                           "the passphrase is empty");
  }
  if (salt.size() < kWrapSaltBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SALT",
                           "the salt has less than " + std::to_string(kWrapSaltBytes) + " bytes");
  }
  std::string key(kSealKeyBytes, '\0');
  Must(EVP_PBE_scrypt(passphrase.data(), passphrase.size(), Bytes(salt), salt.size(), kScryptN,
                      kScryptR, kScryptP, kScryptMemory, Bytes(key.data()), key.size()));
  return key;
}

absl::StatusOr<std::string> ReadPassphraseFile(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(std::string passphrase, ReadSecretFile(path));
  while (passphrase.ends_with('\n') || passphrase.ends_with('\r')) passphrase.pop_back();
  return passphrase;
}

}  // namespace onepiece::identity
