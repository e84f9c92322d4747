// The verb cert: certificates of a CA whose key is a file. These verbs ask no cluster; those of
// verbs_cert_cluster.cc do.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/cli/cert_output.h"
#include "cluster/cli/verbs.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/trust_bundle.h"
#include "cluster/terminal/exit_code.h"

namespace onepiece::cli {
namespace {

namespace fs = std::filesystem;

struct CertArguments {
  std::string cluster, name, role, tenant, scope, authority_folder, out, authority_file, key_file;
  std::vector<std::string> hosts, files;
  int days = static_cast<int>(identity::kCertificateLife / identity::kDay);
};

base::WallTime Now() { return base::SystemClock().WallNow(); }

std::string AuthorityFolder(const Context& context, const CertArguments& arguments) {
  return arguments.authority_folder.empty() ? context.data_dir + "/identity"
                                            : arguments.authority_folder;
}

/// Any file may be shown, whoever's it is: a certificate is no secret, and to look at it is not to
/// trust it.
absl::StatusOr<std::vector<identity::Certificate>> ReadCertificates(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || fs::is_directory(path)) {
    return base::MakeError(absl::StatusCode::kNotFound, "NO_FILE", "there is no file " + path,
                           {{"path", path}});
  }
  std::string pem(static_cast<std::size_t>(128 << 10), '\0');
  file.read(pem.data(), static_cast<std::streamsize>(pem.size()));
  pem.resize(static_cast<std::size_t>(file.gcount()));
  auto all = identity::Certificate::ListFromPem(pem);
  if (!all.ok()) return base::Annotate(all.status(), path);
  return all;
}

int RunCreateAuthority(const Context& context, const CertArguments& arguments) {
  const std::string folder = AuthorityFolder(context, arguments);
  const auto authority = identity::Authority::Create(arguments.cluster, Now());
  if (!authority.ok()) return context.Fail(authority.status());
  const absl::Status saved = identity::SaveAuthority(folder, *authority);
  if (!saved.ok()) return context.Fail(saved);
  const identity::IdentityFiles files = identity::FilesOf(folder, identity::kAuthorityName);
  Json document = {{"certificate", files.certificate}, {"key", files.key}};
  document.update(CertificateDocument(authority->certificate(), Now()));
  context.Print(document,
                absl::StrCat(CertificateText(authority->certificate(), Now()),
                             "Written: ", files.certificate, " and ", files.key,
                             "\nWho has ca.key can become any node: keep it off the network.\n"));
  return terminal::kOk;
}

/// The cluster that a CA is of.
absl::StatusOr<std::string> ClusterOf(const identity::Authority& authority,
                                      const CertArguments& arguments) {
  if (!arguments.cluster.empty()) return arguments.cluster;
  const std::string cluster = authority.certificate().Organization();
  if (identity::CheckClusterId(cluster).ok()) return cluster;
  return terminal::UsageError("the CA's certificate names no cluster as its O: give --cluster");
}

/// Refuses to replace the certificate of somebody else.
absl::Status CheckSameOwner(const identity::IdentityFiles& files,
                            const identity::Subject& subject) {
  const auto present = identity::ReadCertificateFile(files.certificate);
  if (absl::IsNotFound(present.status())) return absl::OkStatus();
  if (!present.ok()) return present.status();
  const auto owner = present->GetSubject();
  if (!owner.ok()) return owner.status();
  const auto id = [](const identity::Subject& one) {
    const auto* node = std::get_if<identity::NodeSubject>(&one);
    return node != nullptr ? node->id : std::get<identity::PrincipalSubject>(one).name;
  };
  if (owner->index() == subject.index() && id(*owner) == id(subject) &&
      identity::ClusterOf(*owner) == identity::ClusterOf(subject)) {
    return absl::OkStatus();
  }
  return base::MakeError(absl::StatusCode::kAlreadyExists, "OTHER_IDENTITY",
                         absl::StrCat(files.certificate, " is there already, of ",
                                      identity::Describe(*owner), ": give another --out"));
}

/// The key that is there stays, so that a renewal changes one file.
absl::StatusOr<identity::PrivateKey> KeyFor(const identity::IdentityFiles& files) {
  auto present = identity::ReadKeyFile(files.key);
  if (absl::IsNotFound(present.status())) return identity::PrivateKey::Generate();
  return present;
}

/// The CAs that are there stay too: the cluster may be changing from one to the next.
absl::StatusOr<identity::TrustBundle> TrustFor(const identity::IdentityFiles& files,
                                               const identity::Authority& authority) {
  auto present = identity::ReadTrustFile(files.authorities);
  if (absl::IsNotFound(present.status())) return identity::TrustBundle(authority.certificate());
  if (!present.ok()) return present.status();
  ONEPIECE_RETURN_IF_ERROR(present->Add(authority.certificate()));
  return present;
}

/// Makes a certificate for `subject` and writes the files of its identity to --out.
absl::StatusOr<identity::Certificate> Create(const identity::Authority& authority,
                                             const identity::Subject& subject,
                                             const std::string& name,
                                             const CertArguments& arguments) {
  const identity::IdentityFiles files = identity::FilesOf(arguments.out, name);
  ONEPIECE_RETURN_IF_ERROR(CheckSameOwner(files, subject));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::PrivateKey key, KeyFor(files));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::TrustBundle trust, TrustFor(files, authority));
  ONEPIECE_ASSIGN_OR_RETURN(
      identity::Certificate certificate,
      authority.Issue(identity::SigningRequest::Make(key), subject, Now(),
                      {.hosts = arguments.hosts, .life = arguments.days * identity::kDay}));
  ONEPIECE_RETURN_IF_ERROR(identity::SaveIdentity(arguments.out, name, key, certificate, trust));
  return certificate;
}

int PrintCreated(const Context& context, const CertArguments& arguments, const std::string& name,
                 const absl::StatusOr<identity::Certificate>& certificate) {
  if (!certificate.ok()) return context.Fail(certificate.status());
  const identity::IdentityFiles files = identity::FilesOf(arguments.out, name);
  Json document = {
      {"certificate", files.certificate}, {"key", files.key}, {"ca", files.authorities}};
  document.update(CertificateDocument(*certificate, Now()));
  context.Print(document,
                absl::StrCat(CertificateText(*certificate, Now()), "Written: ", files.certificate,
                             ", ", files.key, " and ", files.authorities, "\n"));
  return terminal::kOk;
}

int RunCreateNode(const Context& context, const CertArguments& arguments) {
  const auto roles = identity::ParseRoles(arguments.role);
  if (!roles.ok()) return context.Fail(roles.status());
  const auto authority = identity::LoadAuthority(AuthorityFolder(context, arguments));
  if (!authority.ok()) return context.Fail(authority.status());
  const auto cluster = ClusterOf(*authority, arguments);
  if (!cluster.ok()) return context.Fail(cluster.status());
  const identity::NodeSubject node{.cluster = *cluster, .id = arguments.name, .roles = *roles};
  return PrintCreated(context, arguments, identity::kNodeName,
                      Create(*authority, node, identity::kNodeName, arguments));
}

int RunCreateClient(const Context& context, const CertArguments& arguments) {
  const auto scopes = identity::ParseScopes(arguments.scope);
  if (!scopes.ok()) return context.Fail(scopes.status());
  const auto authority = identity::LoadAuthority(AuthorityFolder(context, arguments));
  if (!authority.ok()) return context.Fail(authority.status());
  const auto cluster = ClusterOf(*authority, arguments);
  if (!cluster.ok()) return context.Fail(cluster.status());
  const identity::PrincipalSubject principal{
      .cluster = *cluster, .name = arguments.name, .tenant = arguments.tenant, .scopes = *scopes};
  // The name becomes that of files, so it is checked first.
  const auto uri = identity::FormatSubject(principal);
  if (!uri.ok()) return context.Fail(uri.status());
  const absl::Status named = identity::CheckIdentityName(principal.name);
  if (!named.ok()) return context.Fail(named);
  return PrintCreated(context, arguments, principal.name,
                      Create(*authority, principal, principal.name, arguments));
}

int RunShowCertificates(const Context& context, const CertArguments& arguments) {
  Json documents = Json::array();
  std::string text;
  for (const std::string& path : arguments.files) {
    const auto all = ReadCertificates(path);
    if (!all.ok()) return context.Fail(all.status());
    for (const identity::Certificate& certificate : *all) {
      Json document = {{"file", path}};
      document.update(CertificateDocument(certificate, Now()));
      documents.push_back(std::move(document));
      absl::StrAppend(&text, path, ": ", CertificateText(certificate, Now()));
    }
  }
  context.Print({{"certificates", documents}}, text);
  return terminal::kOk;
}

/// What the files of an identity must be, so that a cluster takes them.
absl::Status VerifyFiles(const identity::Certificate& certificate, const std::string& path,
                         const CertArguments& arguments) {
  const std::string beside = (fs::path(path).parent_path() / "ca.pem").string();
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::TrustBundle trust,
      identity::ReadTrustFile(arguments.authority_file.empty() ? beside
                                                               : arguments.authority_file));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject subject,
                            trust.Verify(certificate, identity::Purpose::kClient, Now()));
  if (std::holds_alternative<identity::NodeSubject>(subject)) {
    ONEPIECE_RETURN_IF_ERROR(trust.Verify(certificate, identity::Purpose::kServer, Now()).status());
  }
  if (!arguments.cluster.empty())
    ONEPIECE_RETURN_IF_ERROR(identity::CheckCluster(subject, arguments.cluster));
  if (!arguments.role.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(const identity::RoleSet roles, identity::ParseRoles(arguments.role));
    ONEPIECE_RETURN_IF_ERROR(identity::CheckRole(subject, roles));
  }
  if (arguments.key_file.empty()) return absl::OkStatus();
  ONEPIECE_ASSIGN_OR_RETURN(const identity::PrivateKey key,
                            identity::ReadKeyFile(arguments.key_file));
  return identity::CheckKeyIsOf(key, certificate);
}

int RunVerifyCertificate(const Context& context, const CertArguments& arguments) {
  const std::string& path = arguments.files.front();
  const auto all = ReadCertificates(path);
  if (!all.ok()) return context.Fail(all.status());
  const absl::Status verified = VerifyFiles(all->front(), path, arguments);
  if (!verified.ok()) return context.Fail(verified);
  Json document = {{"ok", true}, {"file", path}};
  document.update(CertificateDocument(all->front(), Now()));
  context.Print(document, absl::StrCat(path, ": good. ", CertificateText(all->front(), Now())));
  return terminal::kOk;
}

using CertRunner = int (*)(const Context&, const CertArguments&);

CLI::App* AddCertVerb(CLI::App& cert, Context& context, const char* name, const char* help,
                      const std::shared_ptr<CertArguments>& arguments, CertRunner run) {
  CLI::App* verb = cert.add_subcommand(name, help);
  verb->callback([&context, arguments, run] {
    context.action = [&context, arguments, run] { return run(context, *arguments); };
  });
  return verb;
}

void AddAuthorityFolder(CLI::App& verb, CertArguments& arguments) {
  verb.add_option("--ca-dir", arguments.authority_folder,
                  "The folder of ca.pem and ca.key (default: DATA_DIR/identity)")
      ->type_name("DIR");
}

/// The options of both verbs that make certificates.
void AddCreateOptions(CLI::App& verb, CertArguments& arguments) {
  AddAuthorityFolder(verb, arguments);
  verb.add_option("--out", arguments.out,
                  "The folder for the files; a key that is there is kept, so this renews")
      ->required()
      ->type_name("DIR");
  verb.add_option("--cluster", arguments.cluster, "Its id (default: what the CA's name says)");
  verb.add_option("--days", arguments.days, "How long the certificate is valid")
      ->check(CLI::Range(1, static_cast<int>(identity::kMaxCertificateLife / identity::kDay)))
      ->capture_default_str();
}

void AddCreatingVerbs(CLI::App& cert, Context& context,
                      const std::shared_ptr<CertArguments>& arguments) {
  CLI::App* authority =
      AddCertVerb(cert, context, "create-ca", "Make a CA: ca.pem and ca.key, valid for ten years",
                  arguments, RunCreateAuthority);
  authority->add_option("cluster", arguments->cluster, "The cluster's id")->required();
  AddAuthorityFolder(*authority, *arguments);
  CLI::App* node = AddCertVerb(cert, context, "create-node",
                               "Make a node's identity: node.pem, node.key and ca.pem", arguments,
                               RunCreateNode);
  node->add_option("id", arguments->name, "The node's id")->required()->type_name("NODE");
  node->add_option("--role", arguments->role,
                   "nodemanager, proxy, instance, database, gateway, agent; several with commas")
      ->required();
  node->add_option("--host", arguments->hosts,
                   "A DNS name or IP address, for browsers and other strangers to the cluster")
      ->allow_extra_args(false);
  AddCreateOptions(*node, *arguments);
  CLI::App* client = AddCertVerb(cert, context, "create-client",
                                 "Make the identity of a person or a program: NAME.pem, NAME.key "
                                 "and ca.pem",
                                 arguments, RunCreateClient);
  client->add_option("name", arguments->name, "The principal's name")->required();
  client->add_option("--tenant", arguments->tenant, "Whose jobs it sees")->required();
  client
      ->add_option("--scope", arguments->scope,
                   "submit, read-own, read, cancel-own, operate, admin; several with commas")
      ->required();
  AddCreateOptions(*client, *arguments);
}

}  // namespace

void DefineCert(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  verb.footer(
      "list, renew, revoke, rotate and authority ask the cluster; the others work on files. Keys "
      "are written with mode 0600\ninto folders of mode 0700; what others may read is refused. "
      "docs/security.md.");
  const auto arguments = std::make_shared<CertArguments>();
  AddCreatingVerbs(verb, context, arguments);
  CLI::App* show =
      AddCertVerb(verb, context, "show", "Whose a certificate is, and until when it is valid",
                  arguments, RunShowCertificates);
  show->add_option("file", arguments->files, "Files of certificates (PEM)")->required();
  CLI::App* verify = AddCertVerb(
      verb, context, "verify",
      "Check a certificate as a node of the cluster would; exit code 5 when it is refused",
      arguments, RunVerifyCertificate);
  verify->add_option("file", arguments->files, "A certificate (PEM)")->required()->expected(1);
  verify->add_option("--ca", arguments->authority_file, "The CAs (default: ca.pem beside it)")
      ->type_name("FILE");
  verify->add_option("--key", arguments->key_file, "Check that this key is its")->type_name("FILE");
  verify->add_option("--cluster", arguments->cluster, "Check that it is of this cluster");
  verify->add_option("--role", arguments->role, "Check that it has one of these roles");
  AddClusterCertVerbs(verb, context);
}

}  // namespace onepiece::cli
