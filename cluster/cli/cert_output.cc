#include "cluster/cli/cert_output.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/identity/trust_bundle.h"

namespace onepiece::cli {
namespace {

using terminal::Json;

std::string StateOf(const identity::Certificate& certificate, base::WallTime now) {
  const std::string reason = base::GetReason(identity::CheckTimes(certificate, now)).reason;
  if (reason == "CERTIFICATE_EXPIRED") return "expired";
  return reason.empty() ? "valid" : "not_valid_yet";
}

void AddSubject(const identity::Subject& subject, Json& document) {
  document["subject"] = *identity::FormatSubject(subject);
  document["cluster"] = identity::ClusterOf(subject);
  if (const auto* node = std::get_if<identity::NodeSubject>(&subject)) {
    document["kind"] = "node";
    document["node"] = node->id;
    document["roles"] = identity::WordsOf(node->roles);
    return;
  }
  const auto& principal = std::get<identity::PrincipalSubject>(subject);
  document["kind"] = "principal";
  document["principal"] = principal.name;
  document["tenant"] = principal.tenant;
  document["scopes"] = identity::WordsOf(principal.scopes);
}

}  // namespace

Json CertificateDocument(const identity::Certificate& certificate, base::WallTime now) {
  Json document = Json::object();
  const absl::StatusOr<identity::Subject> subject = certificate.GetSubject();
  if (certificate.IsAuthority()) {
    document["kind"] = "ca";
    document["cluster"] = certificate.Organization();
  } else if (subject.ok()) {
    AddSubject(*subject, document);
  } else {
    document["kind"] = "other";
  }
  document["state"] = StateOf(certificate, now);
  document["not_before"] = identity::FormatTime(certificate.not_before());
  document["not_after"] = identity::FormatTime(certificate.not_after());
  document["renew_after"] = identity::FormatTime(certificate.RenewalTime());
  document["hosts"] = certificate.Hosts();
  document["name"] = certificate.SubjectName();
  document["issuer"] = certificate.IssuerName();
  document["serial_number"] = certificate.SerialNumber();
  document["sha256"] = certificate.Fingerprint();
  document["public_key_sha256"] = identity::ToHex(certificate.PublicKeyHash());
  return document;
}

std::string CertificateText(const identity::Certificate& certificate, base::WallTime now) {
  const absl::StatusOr<identity::Subject> subject = certificate.GetSubject();
  std::string who;
  if (certificate.IsAuthority()) {
    who = absl::StrCat("CA of cluster ", certificate.Organization());
  } else if (subject.ok()) {
    who = identity::Describe(*subject);
  } else {
    who = absl::StrCat(certificate.SubjectName(), " (", base::Message(subject.status()), ")");
  }
  const std::string hosts = absl::StrJoin(certificate.Hosts(), ", ");
  return absl::StrCat(
      who, "\n", subject.ok() ? absl::StrCat("  URI         ", *FormatSubject(*subject), "\n") : "",
      hosts.empty() ? "" : absl::StrCat("  hosts       ", hosts, "\n"),  //
      "  state       ", StateOf(certificate, now), "\n",                 //
      "  valid       ", identity::FormatTime(certificate.not_before()), " to ",
      identity::FormatTime(certificate.not_after()), "\n",  //
      "  renew after ", identity::FormatTime(certificate.RenewalTime()), "\n", "  issuer      ",
      certificate.IssuerName(), "\n",                      //
      "  serial      ", certificate.SerialNumber(), "\n",  //
      "  SHA-256     ", certificate.Fingerprint(), "\n",   //
      "  key SHA-256 ", identity::ToHex(certificate.PublicKeyHash()), "\n");
}

}  // namespace onepiece::cli
