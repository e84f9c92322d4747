// Gives any text to what reads certificates, keys and requests, and looks at all that an accepted
// certificate says of itself.
#include <cstdint>
#include <string_view>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/trust_bundle.h"

namespace onepiece::identity {
namespace {

constexpr base::WallTime kFuzzNow{std::chrono::seconds(1795651200)};

void Look(const Certificate& certificate, const Authority& authority) {
  const std::string said = certificate.SerialNumber() + certificate.SubjectName() +
                           certificate.IssuerName() + certificate.Organization() +
                           certificate.Fingerprint() + FormatTime(certificate.RenewalTime());
  ONEPIECE_CHECK(!said.empty());
  for (const std::string& host : certificate.Hosts()) ONEPIECE_CHECK(host.size() <= 256);
  (void)certificate.IsAuthority();
  (void)certificate.GetSubject();
  (void)CheckTimes(certificate, kFuzzNow);
  (void)CheckKeyIsOf(authority.key(), certificate);
  ONEPIECE_CHECK(Certificate::FromPem(certificate.ToPem())->Fingerprint() ==
                 certificate.Fingerprint());
  // Nobody has this CA's key.
  const TrustBundle trust(authority.certificate());
  ONEPIECE_CHECK(!trust.Verify(certificate, Purpose::kClient, kFuzzNow).ok());
}

}  // namespace
}  // namespace onepiece::identity

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::identity;
  static const Authority authority = *Authority::Create("fuzz", kFuzzNow);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto all = Certificate::ListFromPem(text); all.ok()) {
    for (const Certificate& certificate : *all) Look(certificate, authority);
  } else {
    ONEPIECE_CHECK(!onepiece::base::GetReason(all.status()).reason.empty());
  }
  (void)TrustBundle::FromPem(text);
  if (const auto key = PrivateKey::FromPem(text); key.ok())
    ONEPIECE_CHECK(PrivateKey::FromPem(key->ToPem())->PublicKeyHash() == key->PublicKeyHash());
  if (const auto request = SigningRequest::FromPem(text); request.ok())
    (void)authority.Issue(*request, NodeSubject{"fuzz", "n", {Role::kAgent}}, kFuzzNow);
  return 0;
}
