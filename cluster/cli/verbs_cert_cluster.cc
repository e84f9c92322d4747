// The verbs cert list, renew, revoke, rotate and authority, which ask the cluster.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/cli/cert_output.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/verbs.h"
#include "cluster/contexts/credentials.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/signing_request.h"

namespace onepiece::cli {
namespace {

struct IssuedArguments {
  std::string folder, serial, node, principal, reason;
};

int RunListIssued(const Context& context, client::Client& client,
                  const IssuedArguments& /*arguments*/) {
  const auto issued = client.ListCertificates();
  if (!issued.ok()) return context.Fail(issued.status());
  Json document = {{"certificates", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"SERIAL", "SUBJECT", "UNTIL (UTC)", "STATE", "ASKED FOR BY"}};
  for (const v1::IssuedCertificate& one : issued->certificates()) {
    document["certificates"].push_back({{"serial", one.serial()},
                                        {"subject", one.subject()},
                                        {"not_before_unix_ms", one.not_before_unix_ms()},
                                        {"not_after_unix_ms", one.not_after_unix_ms()},
                                        {"revoked", one.revoked()},
                                        {"requester", one.requester()}});
    rows.push_back({one.serial(), one.subject(), TimeText(one.not_after_unix_ms()),
                    one.revoked() ? "revoked" : "valid", one.requester()});
  }
  context.Print(document, Table(rows));
  return terminal::kOk;
}

int RunRevokeIssued(const Context& context, client::Client& client,
                    const IssuedArguments& arguments) {
  v1::RevokeCertificateRequest request;
  if (!arguments.serial.empty()) request.set_serial(arguments.serial);
  if (!arguments.node.empty()) request.set_subject("node/" + arguments.node);
  if (!arguments.principal.empty()) request.set_subject("principal/" + arguments.principal);
  const int given = static_cast<int>(!arguments.serial.empty()) +
                    static_cast<int>(!arguments.node.empty()) +
                    static_cast<int>(!arguments.principal.empty());
  if (given != 1) {
    return context.Fail(
        terminal::UsageError("one of a serial number, --node and --principal is needed"));
  }
  request.set_reason(arguments.reason);
  const absl::Status revoked = client.RevokeCertificate(request);
  if (!revoked.ok()) return context.Fail(revoked);
  const std::string what = arguments.serial.empty()
                               ? "All certificates of " + request.subject() + " are"
                               : "Certificate " + arguments.serial + " is";
  context.Print({{"serial", arguments.serial.empty() ? Json(nullptr) : Json(arguments.serial)},
                 {"subject", arguments.serial.empty() ? Json(request.subject()) : Json(nullptr)},
                 {"revoked", true}},
                what + " revoked.\n");
  return terminal::kOk;
}

/// Takes a new certificate for the key and the name that the folder has.
absl::StatusOr<identity::Certificate> Renew(client::Client& client, const std::string& folder) {
  ONEPIECE_ASSIGN_OR_RETURN(const contexts::Credentials own, contexts::FindIdentity(folder));
  const base::WallTime now = base::SystemClock().WallNow();
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Identity before,
                            identity::LoadIdentity(folder, own.name, now));
  // The cluster renews whoever asks, whatever the other verbs of this command line would show.
  ONEPIECE_RETURN_IF_ERROR(contexts::Present(own));
  v1::RenewRequest request;
  request.set_signing_request(identity::SigningRequest::Make(before.key).ToPem());
  ONEPIECE_ASSIGN_OR_RETURN(const v1::RenewResponse response, client.Renew(request));
  ONEPIECE_ASSIGN_OR_RETURN(identity::Certificate certificate,
                            identity::Certificate::FromPem(response.certificate()));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::TrustBundle trust,
                            identity::TrustBundle::FromPem(response.authorities()));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject subject,
                            trust.Verify(certificate, identity::Purpose::kClient, now));
  if (subject != before.subject) {
    return base::MakeError(
        absl::StatusCode::kPermissionDenied, "OTHER_IDENTITY",
        absl::StrCat("the cluster answered with a certificate of ", identity::Describe(subject)));
  }
  ONEPIECE_RETURN_IF_ERROR(
      identity::SaveIdentity(folder, own.name, before.key, certificate, trust));
  return certificate;
}

int RunRenew(const Context& context, client::Client& client, const IssuedArguments& arguments) {
  const auto renewed = Renew(client, arguments.folder);
  if (!renewed.ok()) return context.Fail(renewed.status());
  const base::WallTime now = base::SystemClock().WallNow();
  context.Print(CertificateDocument(*renewed, now), CertificateText(*renewed, now));
  return terminal::kOk;
}

std::string RotationName(v1::AuthorityStatus::Rotation rotation) {
  switch (rotation) {
    case v1::AuthorityStatus::INTRODUCED:
      return "introduced";
    case v1::AuthorityStatus::OVERLAP:
      return "overlap";
    default:
      return "none";
  }
}

std::string NextStep(const v1::AuthorityStatus& status) {
  if (!status.waiting_for().empty()) {
    return absl::StrCat("waits for ", absl::StrJoin(status.waiting_for(), ", "),
                        "; then run `onepiece cert rotate` again");
  }
  switch (status.rotation()) {
    case v1::AuthorityStatus::INTRODUCED:
      return "every node believes the next CA. People and programs run `onepiece cert renew` now, "
             "to believe it too; then `onepiece cert rotate` lets it sign";
    case v1::AuthorityStatus::OVERLAP:
      return "every node has a certificate of the new CA. People and programs run `onepiece cert "
             "renew` now, to have one too; then `onepiece cert rotate` forgets the old one";
    default:
      return "no rotation is under way";
  }
}

/// `renewed`: the identity that went along; empty for none.
int PrintAuthority(const Context& context, const v1::AuthorityStatus& status,
                   const std::string& renewed) {
  const std::string& next = status.next_fingerprint();
  context.Print(
      {{"fingerprint", status.fingerprint()},
       {"not_after_unix_ms", status.not_after_unix_ms()},
       {"next_fingerprint", next.empty() ? Json(nullptr) : Json(next)},
       {"rotation", RotationName(status.rotation())},
       {"renewed", renewed.empty() ? Json(nullptr) : Json(renewed)},
       {"waiting_for",
        std::vector<std::string>(status.waiting_for().begin(), status.waiting_for().end())}},
      absl::StrCat("signs        ", status.fingerprint(), "\n", "until        ",
                   TimeText(status.not_after_unix_ms()), "\n",
                   next.empty() ? "" : absl::StrCat("other CA     ", next, "\n"), "rotation     ",
                   RotationName(status.rotation()), ": ", NextStep(status), "\n",
                   renewed.empty() ? "" : absl::StrCat("renewed      ", renewed, "\n")));
  return terminal::kOk;
}

int RunRotate(const Context& context, client::Client& client, const IssuedArguments& arguments) {
  v1::RotateAuthorityRequest request;
  request.set_reason(arguments.reason);
  const absl::StatusOr<v1::AuthorityStatus> status = client.RotateAuthority(request);
  if (!status.ok()) return context.Fail(status.status());
  // Whoever takes the steps follows them, as nodes do, or would not believe the nodes after the
  // next one.
  const absl::StatusOr<local::ClusterState> cluster = context.FindCluster();
  std::string folder = cluster.ok() ? cluster->identity : "";
  if (const auto renewed = folder.empty() ? absl::OkStatus() : Renew(client, folder).status();
      !renewed.ok()) {
    std::cerr << "onepiece: the cluster took the step, but the identity in " << folder
              << " was not renewed: " << base::Message(renewed) << ": run `onepiece cert renew "
              << folder << "`\n";
    folder.clear();
  }
  return PrintAuthority(context, *status, folder);
}

int RunShowAuthority(const Context& context, client::Client& client,
                     const IssuedArguments& /*arguments*/) {
  const absl::StatusOr<v1::AuthorityStatus> status = client.GetAuthority();
  return status.ok() ? PrintAuthority(context, *status, "") : context.Fail(status.status());
}

}  // namespace

void AddClusterCertVerbs(CLI::App& cert, Context& context) {
  const auto arguments = std::make_shared<IssuedArguments>();
  const auto with =
      [&context, arguments](int (*run)(const Context&, client::Client&, const IssuedArguments&)) {
        return [&context, arguments, run](client::Client& client) {
          return run(context, client, *arguments);
        };
      };
  const auto add_reason = [&](CLI::App& to) {
    to.add_option("--reason", arguments->reason, "Why, for the audit log");
  };
  AddManagerVerb(cert, context, "list",
                 "The certificates that the cluster has issued and that have not expired",
                 with(RunListIssued));
  AddManagerVerb(
      cert, context, "renew",
      "Take a new certificate for the identity in a folder, before the old one ends; its "
      "key stays",
      with(RunRenew))
      ->add_option("folder", arguments->folder, "The folder of NAME.pem, NAME.key and ca.pem")
      ->required()
      ->type_name("DIR");
  CLI::App* revoke =
      AddManagerVerb(cert, context, "revoke", "Make all nodes refuse a certificate, within 5 s",
                     with(RunRevokeIssued));
  revoke->add_option("serial", arguments->serial, "Its serial number (`cert list`)");
  revoke->add_option("--node", arguments->node, "All certificates of this node");
  revoke->add_option("--principal", arguments->principal, "All certificates of this principal");
  add_reason(*revoke);
  CLI::App* rotate = AddManagerVerb(
      cert, context, "rotate",
      "Change to a new CA, one step at a time; exit code 4 while nodes have yet to follow",
      with(RunRotate));
  add_reason(*rotate);
  AddManagerVerb(cert, context, "authority", "The CA that signs now, and how far a change is",
                 with(RunShowAuthority));
}

}  // namespace onepiece::cli
