#include "cluster/identity/private_key.h"

#include "cluster/base/status.h"
#include "cluster/identity/openssl.h"
#include "cluster/identity/pem.h"

namespace onepiece::identity {
namespace {

constexpr int kMinSecurityBits = 112;

absl::Status BadKey(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

/// Without it OpenSSL would ask for a passphrase on the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

}  // namespace

void PrivateKey::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

PrivateKey PrivateKey::Generate() { return PrivateKey(Must(EVP_EC_gen("P-256"))); }

absl::StatusOr<PrivateKey> PrivateKey::FromPem(std::string_view pem) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<PemBlock> blocks, FindPem(pem, "PRIVATE KEY"));
  if (blocks.size() > 1) return BadKey("BAD_PEM", "it holds several private keys");
  const PemBlock& block = blocks.front();
  if (block.label == "ENCRYPTED PRIVATE KEY" ||
      block.text.find("Proc-Type: 4,ENCRYPTED") != std::string_view::npos) {
    return BadKey("ENCRYPTED_KEY",
                  "the key is encrypted with a passphrase: decrypt it with `openssl pkey`");
  }
  const BioPtr bio = ReadingBio(block.text);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (key == nullptr) return BadKey("BAD_PEM", "the private key is damaged: " + TakeOpenSslError());
  const int kind = EVP_PKEY_get_base_id(key.get());
  if ((kind != EVP_PKEY_EC && kind != EVP_PKEY_RSA) ||
      EVP_PKEY_get_security_bits(key.get()) < kMinSecurityBits) {
    return BadKey("WEAK_KEY",
                  "use an elliptic curve's key of at least 224 bits, such as P-256, or "
                  "an RSA key of at least 2048");
  }
  return PrivateKey(key.release());
}

std::string PrivateKey::ToPem() const {
  return Written([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

std::string PrivateKey::PublicKeyHash() const {
  X509_PUBKEY* key = nullptr;
  Must(X509_PUBKEY_set(&key, key_.get()));
  std::string hash = HashOfPublicKey(key);
  X509_PUBKEY_free(key);
  return hash;
}

}  // namespace onepiece::identity
