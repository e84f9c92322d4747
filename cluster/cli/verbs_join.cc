// The verb join: a host becomes a node of a cluster, or one again whose certificate has expired.
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/cli/verbs.h"
#include "cluster/config/yaml_writer.h"
#include "cluster/contexts/credentials.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/secret_files.h"
#include "cluster/identity/signing_request.h"
#include "cluster/identity/token.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/join_credentials.h"
#include "cluster/service/options.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kManagerRole[] = "nodemanager";

struct JoinArguments {
  std::string address, token, role, node_id, listen, advertise;
  std::vector<std::string> hosts;
};

/// What is known before anybody is asked.
struct Joiner {
  std::string data_dir, folder;  ///< `folder` is DATA_DIR/identity.
  identity::JoinToken token;
  identity::PrivateKey key;
};

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

absl::StatusOr<identity::JoinToken> JoinTokenFrom(const std::string& given) {
  std::string text = given;
  if (given == "-") std::getline(std::cin, text);
  return identity::JoinToken::Parse(base::View(absl::StripAsciiWhitespace(text)));
}

/// Each node has a folder of its own below the default one, as the service programs have it.
std::string DataDirOf(const Context& context, const JoinArguments& arguments) {
  std::string folder = context.data_dir;
  if (folder == service::DefaultStateDir()) absl::StrAppend(&folder, "/", arguments.node_id);
  return fs::absolute(folder).lexically_normal().string();
}

absl::Status OtherIdentity(const std::string& folder, const std::string& owner) {
  return base::MakeError(absl::StatusCode::kAlreadyExists, "OTHER_IDENTITY",
                         absl::StrCat(folder, " has the identity of ", owner,
                                      ": give another --data-dir, or move it away"));
}

/// The key that is there stays. So a node that comes back keeps it, and after a crash the same
/// request is made again, which uses the token only once.
absl::StatusOr<identity::PrivateKey> KeyOfNode(const std::string& folder,
                                               const std::string& node_id) {
  const identity::IdentityFiles files = identity::FilesOf(folder, identity::kNodeName);
  const auto certificate = identity::ReadCertificateFile(files.certificate);
  if (certificate.ok()) {
    ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject owner, certificate->GetSubject());
    const auto* node = std::get_if<identity::NodeSubject>(&owner);
    if (node == nullptr || node->id != node_id)
      return OtherIdentity(folder, identity::Describe(owner));
  } else if (!absl::IsNotFound(certificate.status())) {
    return certificate.status();
  }
  auto present = identity::ReadKeyFile(files.key);
  if (!absl::IsNotFound(present.status())) return present;
  identity::PrivateKey key = identity::PrivateKey::Generate();
  ONEPIECE_RETURN_IF_ERROR(identity::EnsureSecretFolder(folder));
  ONEPIECE_RETURN_IF_ERROR(identity::WriteSecretFile(files.key, key.ToPem()));
  return key;
}

absl::StatusOr<Joiner> PrepareJoin(const Context& context, const JoinArguments& arguments) {
  ONEPIECE_RETURN_IF_ERROR(service::CheckAddress("HOST:PORT", arguments.address));
  for (const auto& [flag, address] :
       {std::pair{"--listen", &arguments.listen}, {"--advertise", &arguments.advertise}}) {
    if (!address->empty()) ONEPIECE_RETURN_IF_ERROR(service::CheckAddress(flag, *address));
  }
  if (arguments.role == kManagerRole &&
      (arguments.listen.empty() || arguments.listen.ends_with(":0")))
    return terminal::UsageError("others dial a NodeManager, so it needs --listen HOST:PORT");
  ONEPIECE_ASSIGN_OR_RETURN(identity::JoinToken token, JoinTokenFrom(arguments.token));
  const std::string data_dir = DataDirOf(context, arguments);
  const std::string folder = data_dir + "/identity";
  ONEPIECE_ASSIGN_OR_RETURN(identity::PrivateKey key, KeyOfNode(folder, arguments.node_id));
  return Joiner{
      .data_dir = data_dir, .folder = folder, .token = std::move(token), .key = std::move(key)};
}

/// Says what to do about a refusal that people can do something about.
absl::Status WithAdvice(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  std::string advice;
  if (reason == "WRONG_TOKEN" || reason == "TOKEN_EXPIRED" || reason == "TOKEN_USED") {
    advice =
        "`onepiece token create --join --role ROLE`, where you administer the cluster, makes a "
        "new one";
  } else if (reason == "NOT_VALID_YET" || reason == "CERTIFICATE_EXPIRED") {
    advice =
        absl::StrCat("this host's clock says ", identity::FormatTime(base::SystemClock().WallNow()),
                     "; if that is wrong, set it and join again");
  } else if (reason == "NODE_ID_TAKEN") {
    advice = "give another --node-id";
  }
  if (advice.empty()) return status;
  absl::Status advised(status.code(), absl::StrCat(base::Message(status), " (", advice, ")"));
  base::SetReason(advised, base::GetReason(status));
  return advised;
}

/// Asks for the certificate. The server is checked by the token's hash before anything is sent.
absl::StatusOr<v1::JoinResponse> AskToJoin(const Joiner& joiner, const JoinArguments& arguments) {
  const rpc::JoinCredentials credentials(joiner.token.ca_hash, base::SystemClock());
  rpc::UseCredentials(credentials.credentials());
  client::ClientOptions options;
  options.nodemanagers = {arguments.address};
  options.timeout = base::Scaled(std::chrono::seconds(20));
  options.stop = credentials.refused();
  client::Client client(options);
  v1::JoinRequest request;
  request.set_secret(joiner.token.secret);
  request.set_node_id(arguments.node_id);
  request.set_signing_request(identity::SigningRequest::Make(joiner.key).ToPem());
  for (const std::string& host : arguments.hosts) request.add_hosts(host);
  // A second attempt is the same request as long as token, node and key are.
  request.set_request_id(base::Sha256Hex(absl::StrCat(joiner.token.secret, arguments.node_id, "/",
                                                      joiner.key.PublicKeyHash()))
                             .substr(0, 32));
  auto response = client.Join(request);
  const absl::Status refusal = credentials.refusal();
  if (!response.ok() && !refusal.ok()) return refusal;
  return response;
}

/// Checks what came back as the node itself will, and writes it.
absl::StatusOr<identity::Certificate> TakeCertificate(const Joiner& joiner,
                                                      const JoinArguments& arguments,
                                                      const v1::JoinResponse& response) {
  ONEPIECE_ASSIGN_OR_RETURN(identity::Certificate certificate,
                            identity::Certificate::FromPem(response.certificate()));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::TrustBundle trust,
                            identity::TrustBundle::FromPem(response.authorities()));
  ONEPIECE_ASSIGN_OR_RETURN(
      const identity::Subject subject,
      trust.Verify(certificate, identity::Purpose::kServer, base::SystemClock().WallNow()));
  ONEPIECE_RETURN_IF_ERROR(identity::CheckCluster(subject, response.cluster_id()));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::Role role, identity::ParseRole(arguments.role));
  ONEPIECE_RETURN_IF_ERROR(identity::CheckRole(subject, {role}));
  const auto before = identity::ReadCertificateFile(
      identity::FilesOf(joiner.folder, identity::kNodeName).certificate);
  if (before.ok()) {
    ONEPIECE_ASSIGN_OR_RETURN(const identity::Subject owner, before->GetSubject());
    if (identity::ClusterOf(owner) != response.cluster_id())
      return OtherIdentity(joiner.folder, identity::Describe(owner));
  }
  ONEPIECE_RETURN_IF_ERROR(
      identity::SaveIdentity(joiner.folder, identity::kNodeName, joiner.key, certificate, trust));
  return certificate;
}

const std::string& DialledAddress(const JoinArguments& arguments) {
  return arguments.advertise.empty() ? arguments.listen : arguments.advertise;
}

/// The file of a NodeManager, which names the group: those that answer, and itself.
std::string ManagerYaml(const Joiner& joiner, const JoinArguments& arguments,
                        const v1::NodeConfig& node) {
  v1::NodeManagerConfig config;
  *config.mutable_node() = node;
  config.mutable_node()->clear_nodemanagers();
  client::ClientOptions options;
  options.nodemanagers = {node.nodemanagers().begin(), node.nodemanagers().end()};
  options.timeout = base::Scaled(std::chrono::seconds(5));
  if (contexts::Present({.folder = joiner.folder, .name = identity::kNodeName}).ok()) {
    for (const client::ReplicaAnswer& replica : client::Client(options).AskReplicas()) {
      if (!replica.name.empty() && replica.name != arguments.node_id)
        config.add_replicas(absl::StrCat(replica.name, "=", replica.address));
    }
  }
  config.add_replicas(absl::StrCat(arguments.node_id, "=", DialledAddress(arguments)));
  return config::ToYaml(config);
}

/// Writes DATA_DIR/ROLE.yaml. One that is there stays, because people change it.
absl::StatusOr<std::string> WriteNodeConfig(const Joiner& joiner, const JoinArguments& arguments,
                                            const v1::JoinResponse& response) {
  std::string path = absl::StrCat(joiner.data_dir, "/", arguments.role, ".yaml");
  if (fs::exists(path)) return path;
  // The other programs' configurations have this one field for what all of them share.
  v1::ProxyConfig config;
  v1::NodeConfig& node = *config.mutable_node();
  node.set_node_id(arguments.node_id);
  node.set_listen(arguments.listen);
  node.set_advertise(arguments.advertise);
  node.set_data_dir(joiner.data_dir);
  for (const std::string& address : response.nodemanagers()) node.add_nodemanagers(address);
  if (response.nodemanagers().empty()) node.add_nodemanagers(arguments.address);
  ONEPIECE_RETURN_IF_ERROR(identity::WriteSecretFile(
      path, arguments.role == kManagerRole ? ManagerYaml(joiner, arguments, node)
                                           : config::ToYaml(config)));
  return path;
}

int RunJoin(const Context& context, const JoinArguments& given) {
  JoinArguments arguments = given;
  if (arguments.node_id.empty())
    arguments.node_id = service::DefaultNodeId(arguments.role, HostName(), "");
  const auto joiner = PrepareJoin(context, arguments);
  if (!joiner.ok()) return context.Fail(WithAdvice(joiner.status()));
  const auto response = AskToJoin(*joiner, arguments);
  if (!response.ok()) return context.Fail(WithAdvice(response.status()));
  const auto certificate = TakeCertificate(*joiner, arguments, *response);
  if (!certificate.ok()) return context.Fail(WithAdvice(certificate.status()));
  const auto config = WriteNodeConfig(*joiner, arguments, *response);
  if (!config.ok()) return context.Fail(config.status());

  const identity::IdentityFiles files = identity::FilesOf(joiner->folder, identity::kNodeName);
  std::string start =
      absl::StrCat("onepiece-", arguments.role, " --config ", identity::ShellWord(*config));
  if (arguments.listen.empty()) absl::StrAppend(&start, " --listen HOST:PORT");
  const std::string until = identity::FormatTime(certificate->not_after());
  const std::string seat = absl::StrCat("onepiece cluster add ", arguments.node_id, " --address ",
                                        DialledAddress(arguments));
  context.Print(
      {{"cluster_id", response->cluster_id()},
       {"node_id", arguments.node_id},
       {"role", arguments.role},
       {"tls", {{"ca", files.authorities}, {"certificate", files.certificate}, {"key", files.key}}},
       {"not_after", until},
       {"config", *config},
       {"start", start}},
      absl::StrCat(
          "This host is ", arguments.node_id, " of cluster ", response->cluster_id(),
          ". Its certificate is valid until ", until, " and renews itself while the node runs.\n\n",
          arguments.role == kManagerRole ? absl::StrCat("  ", seat, "    (where you administer)\n")
                                         : "",
          "  ", start, "\n"));
  return terminal::kOk;
}

}  // namespace

void DefineJoin(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<JoinArguments>();
  verb.add_option("address", arguments->address, "A NodeManager of the cluster")
      ->required()
      ->type_name("HOST:PORT");
  verb.add_option("--token", arguments->token,
                  "The join token; - reads the standard input, so that no process list shows it")
      ->required();
  verb.add_option("--role", arguments->role, "What the node is")
      ->required()
      ->check(CLI::IsMember({"nodemanager", "proxy", "instance", "database", "gateway", "agent"}));
  verb.add_option("--node-id", arguments->node_id, "Its id (default: ROLE-HOSTNAME)");
  verb.add_option("--listen", arguments->listen, "For ROLE.yaml: where it listens, HOST:PORT");
  verb.add_option("--advertise", arguments->advertise, "For ROLE.yaml: what others dial");
  verb.add_option("--host", arguments->hosts,
                  "A DNS name or IP address for its certificate, for browsers")
      ->allow_extra_args(false);
  verb.footer(
      "The server is checked by the token before anything is sent. A node whose certificate has "
      "expired comes back\nby the same command, with a new token; its key stays. Exit code 5: the "
      "token or the server was refused.");
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunJoin(context, *arguments); };
  });
}

}  // namespace onepiece::cli
