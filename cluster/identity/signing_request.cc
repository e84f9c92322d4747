#include "cluster/identity/signing_request.h"

#include "cluster/base/status.h"
#include "cluster/identity/openssl.h"
#include "cluster/identity/pem.h"

namespace onepiece::identity {
namespace {

constexpr int kMinRequestSecurityBits = 112;

absl::Status BadRequest(absl::StatusCode code, std::string_view reason,
                        const std::string& message) {
  return base::MakeError(code, reason, message);
}

}  // namespace

SigningRequest::SigningRequest(X509_req_st* request)
    : request_(request, [](X509_REQ* object) { X509_REQ_free(object); }) {}

SigningRequest SigningRequest::Make(const PrivateKey& key) {
  SigningRequest request(Must(X509_REQ_new()));
  Must(X509_REQ_set_version(request.get(), X509_REQ_VERSION_1));
  Must(X509_REQ_set_pubkey(request.get(), key.get()));
  Must(X509_REQ_sign(request.get(), key.get(), EVP_sha256()));
  return request;
}

absl::StatusOr<SigningRequest> SigningRequest::FromPem(std::string_view pem) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<PemBlock> blocks,
                            FindPem(pem, "CERTIFICATE REQUEST"));
  constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
  if (blocks.size() > 1) return BadRequest(kPrecondition, "BAD_PEM", "it holds several requests");
  const BioPtr bio = ReadingBio(blocks.front().text);
  RequestPtr read(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  EVP_PKEY* const key = read != nullptr ? X509_REQ_get0_pubkey(read.get()) : nullptr;
  if (key == nullptr) {
    return BadRequest(kPrecondition, "BAD_PEM",
                      "the certificate request is damaged: " + TakeOpenSslError());
  }
  const int kind = EVP_PKEY_get_base_id(key);
  if ((kind != EVP_PKEY_EC && kind != EVP_PKEY_RSA) ||
      EVP_PKEY_get_security_bits(key) < kMinRequestSecurityBits) {
    return BadRequest(kPrecondition, "WEAK_KEY", "the request's key is too weak: use P-256");
  }
  const bool proven = X509_REQ_verify(read.get(), key) == 1;
  ERR_clear_error();
  if (!proven) {
    return BadRequest(absl::StatusCode::kUnauthenticated, "NOT_ITS_KEY",
                      "the request is not signed with the private key of its public key");
  }
  return SigningRequest(read.release());
}

std::string SigningRequest::ToPem() const {
  return Written([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, get()); });
}

std::string SigningRequest::PublicKeyHash() const {
  return HashOfPublicKey(X509_REQ_get_X509_PUBKEY(get()));
}

}  // namespace onepiece::identity
