#include "cluster/identity/authority.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/identity/openssl.h"
#include "cluster/identity/trust_bundle.h"

namespace onepiece::identity {
namespace {

constexpr std::size_t kMaxHosts = 32;
// X.520's upper bound of a common name. OpenSSL refuses longer ones.
constexpr std::size_t kMaxCommonName = 64;

absl::Status BadArgument(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason, message);
}

void SetName(X509_NAME* name, const std::string& organization, const std::string& common) {
  const auto add = [&](const char* field, const std::string& text) {
    Must(X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(text.data()),
                                    static_cast<int>(text.size()), -1, 0));
  };
  add("O", organization);
  add("CN", common.substr(0, kMaxCommonName));
}

void SetSerialNumber(X509* certificate) {
  std::array<unsigned char, 16> bytes{};
  // 0 is no serial number. It comes once in 2^128 times.
  do base::FillRandom(bytes.data(), bytes.size());
  while (std::ranges::all_of(bytes, [](unsigned char byte) { return byte == 0; }));
  const BignumPtr number(Must(BN_bin2bn(bytes.data(), bytes.size(), nullptr)));
  Must(BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)));
}

void SetTimes(X509* certificate, base::WallTime from, base::WallTime to) {
  const TimePtr first(Must(ASN1_TIME_set(nullptr, UnixSeconds(from))));
  const TimePtr last(Must(ASN1_TIME_set(nullptr, UnixSeconds(to))));
  Must(X509_set1_notBefore(certificate, first.get()));
  Must(X509_set1_notAfter(certificate, last.get()));
}

/// `value` is OpenSSL's text for the extension. Only what was checked may be part of it, because it
/// can name other files and sections.
void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(Must(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str())));
  Must(X509_add_ext(certificate, extension.get(), -1));
}

void AddName(GENERAL_NAMES* names, int type, ASN1_STRING* value) {
  GENERAL_NAME* const name = Must(GENERAL_NAME_new());
  GENERAL_NAME_set0_value(name, type, value);
  Must(sk_GENERAL_NAME_push(names, name));
}

ASN1_STRING* NewText(int type, const void* bytes, std::size_t size) {
  ASN1_STRING* const text = Must(ASN1_STRING_type_new(type));
  Must(ASN1_STRING_set(text, bytes, static_cast<int>(size)));
  return text;
}

/// Whether `host` has the form of a DNS name, perhaps with a "*" as its first label.
bool IsDnsName(std::string_view host) {
  if (host.starts_with("*.")) host.remove_prefix(2);
  if (host.empty() || host.size() > 253) return false;
  return std::ranges::all_of(host, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.';
  });
}

absl::Status AddHost(GENERAL_NAMES* names, const std::string& host) {
  std::array<unsigned char, 16> address{};
  if (inet_pton(AF_INET, host.c_str(), address.data()) == 1) {
    AddName(names, GEN_IPADD, NewText(V_ASN1_OCTET_STRING, address.data(), 4));
  } else if (inet_pton(AF_INET6, host.c_str(), address.data()) == 1) {
    AddName(names, GEN_IPADD, NewText(V_ASN1_OCTET_STRING, address.data(), 16));
  } else if (IsDnsName(host)) {
    AddName(names, GEN_DNS, NewText(V_ASN1_IA5STRING, host.data(), host.size()));
  } else {
    return BadArgument("BAD_HOST",
                       "\"" + base::ToUtf8(host, 256) + "\" is no DNS name and no IP address");
  }
  return absl::OkStatus();
}

absl::Status AddAlternativeNames(X509* certificate, const std::string& uri,
                                 const std::vector<std::string>& hosts) {
  const NamesPtr names(Must(sk_GENERAL_NAME_new_null()));
  AddName(names.get(), GEN_URI, NewText(V_ASN1_IA5STRING, uri.data(), uri.size()));
  for (const std::string& host : hosts) ONEPIECE_RETURN_IF_ERROR(AddHost(names.get(), host));
  Must(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT));
  return absl::OkStatus();
}

const std::string& IdOf(const Subject& subject) {
  if (const auto* node = std::get_if<NodeSubject>(&subject)) return node->id;
  return std::get<PrincipalSubject>(subject).name;
}

CertificatePtr NewCertificate() {
  CertificatePtr certificate(Must(X509_new()));
  Must(X509_set_version(certificate.get(), X509_VERSION_3));
  SetSerialNumber(certificate.get());
  return certificate;
}

}  // namespace

absl::StatusOr<Authority> Authority::Create(const std::string& cluster, base::WallTime now) {
  ONEPIECE_RETURN_IF_ERROR(CheckClusterId(cluster));
  PrivateKey key = PrivateKey::Generate();
  CertificatePtr certificate = NewCertificate();
  X509* const made = certificate.get();
  Must(X509_set_pubkey(made, key.get()));
  SetName(X509_get_subject_name(made), cluster,
          "OnePiece CA " + ToHex(key.PublicKeyHash()).substr(0, 8));
  Must(X509_set_issuer_name(made, X509_get_subject_name(made)));
  SetTimes(made, now - kBackdate, now + kAuthorityLife);
  AddExtension(made, made, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  AddExtension(made, made, NID_key_usage, "critical,keyCertSign,cRLSign");
  AddExtension(made, made, NID_subject_key_identifier, "hash");
  AddExtension(made, made, NID_authority_key_identifier, "keyid:always");
  Must(X509_sign(made, key.get(), EVP_sha256()));
  return Authority(Certificate(certificate.release()), std::move(key));
}

absl::StatusOr<Authority> Authority::FromPem(std::string_view certificate_pem,
                                             std::string_view key_pem) {
  ONEPIECE_ASSIGN_OR_RETURN(Certificate certificate, Certificate::FromPem(certificate_pem));
  ONEPIECE_ASSIGN_OR_RETURN(PrivateKey key, PrivateKey::FromPem(key_pem));
  if (!certificate.IsAuthority()) return NotAnAuthority(certificate);
  ONEPIECE_RETURN_IF_ERROR(CheckKeyIsOf(key, certificate));
  return Authority(std::move(certificate), std::move(key));
}

absl::StatusOr<Certificate> Authority::Issue(const SigningRequest& request, const Subject& subject,
                                             base::WallTime now,
                                             const IssueOptions& options) const {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string uri, FormatSubject(subject));
  if (options.life <= base::Duration::zero() || options.life > kMaxCertificateLife) {
    return BadArgument("BAD_LIFE", "a certificate lives for at most " +
                                       std::to_string(kMaxCertificateLife / kDay) + " days");
  }
  if (options.hosts.size() > kMaxHosts) {
    return BadArgument("BAD_HOST",
                       "a certificate has at most " + std::to_string(kMaxHosts) + " hosts");
  }
  ONEPIECE_RETURN_IF_ERROR(CheckTimes(certificate_, now));
  CertificatePtr certificate = NewCertificate();
  X509* const made = certificate.get();
  X509* const issuer = certificate_.get();
  Must(X509_set_pubkey(made, X509_REQ_get0_pubkey(request.get())));
  SetName(X509_get_subject_name(made), ClusterOf(subject), IdOf(subject));
  Must(X509_set_issuer_name(made, X509_get_subject_name(issuer)));
  SetTimes(made, now - kBackdate, std::min(now + options.life, certificate_.not_after()));
  const bool node = std::holds_alternative<NodeSubject>(subject);
  AddExtension(made, issuer, NID_basic_constraints, "critical,CA:FALSE");
  AddExtension(made, issuer, NID_key_usage, "critical,digitalSignature");
  AddExtension(made, issuer, NID_ext_key_usage, node ? "serverAuth,clientAuth" : "clientAuth");
  AddExtension(made, issuer, NID_subject_key_identifier, "hash");
  AddExtension(made, issuer, NID_authority_key_identifier, "keyid");
  std::vector<std::string> hosts = options.hosts;
  if (node) hosts.insert(hosts.begin(), kNodeDnsName);
  ONEPIECE_RETURN_IF_ERROR(AddAlternativeNames(made, uri, hosts));
  Must(X509_sign(made, key_.get(), EVP_sha256()));
  return Certificate(certificate.release());
}

}  // namespace onepiece::identity
