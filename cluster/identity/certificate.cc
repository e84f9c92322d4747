#include "cluster/identity/certificate.h"

#include <arpa/inet.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/identity/openssl.h"
#include "cluster/identity/pem.h"

namespace onepiece::identity {
namespace {

absl::Status BadCertificate(const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "BAD_PEM", message);
}

absl::Status NoSubject(const std::string& message) {
  return base::MakeError(absl::StatusCode::kUnauthenticated, "NO_SUBJECT", message);
}

base::WallTime WallTimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    ERR_clear_error();
    return base::WallTime::min();
  }
  const std::chrono::seconds seconds(timegm(&parts));
  using std::chrono::floor;
  if (seconds > floor<std::chrono::seconds>(base::WallTime::max().time_since_epoch()))
    return base::WallTime::max();
  if (seconds < floor<std::chrono::seconds>(base::WallTime::min().time_since_epoch()) +
                    std::chrono::seconds(1))
    return base::WallTime::min();
  return base::WallTime(seconds);
}

std::string NameText(const X509_NAME* name) {
  const std::string text = Written([&](BIO* bio) {
    // 0 is the length of an empty name's text.
    return X509_NAME_print_ex(bio, name, 0, XN_FLAG_ONELINE & ~XN_FLAG_SPC_EQ) >= 0 ? 1 : -1;
  });
  return base::ToUtf8(text, 1024);
}

std::string_view TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

NamesPtr AlternativeNames(X509* certificate) {
  NamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  ERR_clear_error();
  return names;
}

std::string AddressText(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int size = ASN1_STRING_length(address);
  const int family = size == 4 ? AF_INET : AF_INET6;
  if (size != 4 && size != 16) return "?";
  inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size());
  return text.data();
}

}  // namespace

Certificate::Certificate(x509_st* certificate)
    : certificate_(certificate, [](X509* object) { X509_free(object); }),
      not_before_(WallTimeOf(X509_get0_notBefore(certificate))),
      not_after_(WallTimeOf(X509_get0_notAfter(certificate))) {}

absl::StatusOr<std::vector<Certificate>> Certificate::ListFromPem(std::string_view pem) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<PemBlock> blocks, FindPem(pem, "CERTIFICATE"));
  std::vector<Certificate> certificates;
  for (const PemBlock& block : blocks) {
    const BioPtr bio = ReadingBio(block.text);
    X509* const certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr);
    if (certificate == nullptr)
      return BadCertificate("the certificate is damaged: " + TakeOpenSslError());
    certificates.emplace_back(certificate);
  }
  return certificates;
}

absl::StatusOr<Certificate> Certificate::FromPem(std::string_view pem) {
  ONEPIECE_ASSIGN_OR_RETURN(std::vector<Certificate> all, ListFromPem(pem));
  if (all.size() > 1) {
    return BadCertificate("it holds " + std::to_string(all.size()) + " certificates, not one");
  }
  return std::move(all.front());
}

std::string Certificate::ToPem() const {
  return Written([&](BIO* bio) { return PEM_write_bio_X509(bio, get()); });
}

base::WallTime Certificate::RenewalTime() const {
  // Thirds first: the whole life of a foreign certificate may be more than a Duration holds.
  return not_after_ - (not_after_.time_since_epoch() / 3 - not_before_.time_since_epoch() / 3);
}

std::string Certificate::SerialNumber() const {
  const BignumPtr number(Must(ASN1_INTEGER_to_BN(X509_get0_serialNumber(get()), nullptr)));
  char* const text = Must(BN_bn2hex(number.get()));
  std::string digits(text);
  OPENSSL_free(text);
  for (char& c : digits) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  return digits;
}

std::string Certificate::SubjectName() const { return NameText(X509_get_subject_name(get())); }

std::string Certificate::IssuerName() const { return NameText(X509_get_issuer_name(get())); }

std::string Certificate::Organization() const {
  const X509_NAME* const name = X509_get_subject_name(get());
  const int at = X509_NAME_get_index_by_NID(name, NID_organizationName, -1);
  if (at < 0) return {};
  const std::string_view text = TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)));
  return base::ToUtf8(text, 256);
}

bool Certificate::IsAuthority() const {
  const bool authority = X509_check_ca(get()) == 1;
  ERR_clear_error();
  return authority;
}

std::vector<std::string> Certificate::Hosts() const {
  std::vector<std::string> hosts;
  const NamesPtr names = AlternativeNames(get());
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) hosts.push_back(base::ToUtf8(TextOf(name->d.dNSName), 256));
    if (name->type == GEN_IPADD) hosts.push_back(AddressText(name->d.iPAddress));
  }
  return hosts;
}

absl::StatusOr<Subject> Certificate::GetSubject() const {
  const NamesPtr names = AlternativeNames(get());
  std::string_view uri;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const std::string_view text = TextOf(name->d.uniformResourceIdentifier);
    if (!text.starts_with(kUriScheme)) continue;
    // Two readers might each believe another one of two.
    if (!uri.empty()) return NoSubject("the certificate has several URIs of onepiece://");
    uri = text;
  }
  if (uri.empty()) return NoSubject("the certificate has no URI of onepiece://");
  absl::StatusOr<Subject> subject = ParseSubject(uri);
  if (subject.ok()) return subject;
  // It is the certificate's owner who is refused, not an argument.
  return base::MakeError(absl::StatusCode::kUnauthenticated,
                         base::GetReason(subject.status()).reason,
                         "the certificate's URI: " + base::Message(subject.status()));
}

std::string Certificate::PublicKeyHash() const {
  return HashOfPublicKey(X509_get_X509_PUBKEY(get()));
}

std::string Certificate::Fingerprint() const {
  std::array<unsigned char, 32> digest{};
  Must(X509_digest(get(), EVP_sha256(), digest.data(), nullptr));
  return ToHex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string FormatTime(base::WallTime time) {
  return absl::FormatTime("%E4Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(UnixSeconds(time)),
                          absl::UTCTimeZone());
}

std::string ToHex(std::string_view bytes) { return absl::BytesToHexString(base::AbslView(bytes)); }

}  // namespace onepiece::identity
