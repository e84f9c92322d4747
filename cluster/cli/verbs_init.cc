// The verb init: what a new cluster of several hosts begins with.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/cli/identity_output.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/time_arguments.h"
#include "cluster/cli/verbs.h"
#include "cluster/config/yaml_writer.h"
#include "cluster/contexts/credentials.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/seal.h"
#include "cluster/identity/secret_files.h"
#include "cluster/identity/token.h"
#include "cluster/rpc/caller.h"
#include "cluster/service/options.h"
#include "google/protobuf/util/json_util.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kFirstManager[] = "nodemanager-1";
/// The NodeManager that leads first takes the token of this file into the replicated state.
constexpr char kJoinTokenFile[] = "join-token.json";

struct InitArguments {
  std::string cluster, listen = "127.0.0.1:7000", advertise;
  std::string roles = "proxy,instance,database";
  std::string expires = "1h";
  std::uint32_t uses = 3;
};

/// Where everything is written.
struct InitFolders {
  std::string admin;             ///< DATA_DIR/identity.
  std::string manager;           ///< DATA_DIR/nodemanager-1, the NodeManager's data directory.
  std::string manager_identity;  ///< Its folder `identity`.
  std::string config;            ///< DATA_DIR/nodemanager.yaml.
};

InitFolders FoldersIn(const std::string& data_dir) {
  const std::string top = fs::absolute(data_dir).lexically_normal().string();
  const std::string manager = top + "/" + kFirstManager;
  return {.admin = top + "/identity",
          .manager = manager,
          .manager_identity = manager + "/identity",
          .config = top + "/nodemanager.yaml"};
}

absl::Status CheckInit(const InitArguments& arguments, const InitFolders& folders) {
  ONEPIECE_RETURN_IF_ERROR(identity::CheckClusterId(arguments.cluster));
  ONEPIECE_RETURN_IF_ERROR(identity::ParseRoles(arguments.roles).status());
  ONEPIECE_RETURN_IF_ERROR(ParseSpan("--expires", arguments.expires).status());
  ONEPIECE_RETURN_IF_ERROR(service::CheckAddress("--listen", arguments.listen));
  if (!arguments.advertise.empty())
    ONEPIECE_RETURN_IF_ERROR(service::CheckAddress("--advertise", arguments.advertise));
  const std::string& address = arguments.advertise.empty() ? arguments.listen : arguments.advertise;
  if (address.ends_with(":0"))
    return terminal::UsageError("others dial the NodeManager, so its port must not be 0");
  if (address.starts_with("0.0.0.0:") || address.starts_with("[::]:"))
    return terminal::UsageError(
        "--listen names no one address: what shall others dial? --advertise");
  for (const std::string& there : {folders.admin, folders.manager, folders.config}) {
    if (!fs::exists(there)) continue;
    return base::MakeError(absl::StatusCode::kAlreadyExists, "CLUSTER_EXISTS",
                           absl::StrCat(there,
                                        " is there already: a cluster began here. Give "
                                        "another --data-dir, or move it away"));
  }
  return absl::OkStatus();
}

/// The CA, the NodeManager's identity and the seal key, in the NodeManager's folder.
absl::Status MakeManager(const identity::Authority& authority, const InitArguments& arguments,
                         const InitFolders& folders, base::WallTime now) {
  ONEPIECE_RETURN_IF_ERROR(identity::SaveAuthority(folders.manager_identity, authority));
  ONEPIECE_RETURN_IF_ERROR(
      identity::WriteSealKeyFile(folders.manager_identity, identity::MakeSealKey()));
  const identity::NodeSubject subject{
      .cluster = arguments.cluster, .id = kFirstManager, .roles = {identity::Role::kNodeManager}};
  return identity::MakeIdentity(folders.manager_identity, identity::kNodeName, subject, authority,
                                now)
      .status();
}

absl::StatusOr<identity::Certificate> MakeAdmin(const identity::Authority& authority,
                                                const InitArguments& arguments,
                                                const InitFolders& folders, base::WallTime now) {
  const identity::PrincipalSubject subject{.cluster = arguments.cluster,
                                           .name = identity::kAdminName,
                                           .tenant = identity::kDefaultTenant,
                                           .scopes = {identity::Scope::kAdmin}};
  return identity::MakeIdentity(folders.admin, identity::kAdminName, subject, authority, now);
}

/// Returns the token; the cluster gets its hash only.
absl::StatusOr<std::string> MakeFirstToken(const identity::Authority& authority,
                                           const InitArguments& arguments,
                                           const InitFolders& folders, base::WallTime now,
                                           std::int64_t& expires_unix_ms) {
  ONEPIECE_ASSIGN_OR_RETURN(const absl::Duration life, ParseSpan("--expires", arguments.expires));
  ONEPIECE_ASSIGN_OR_RETURN(const identity::RoleSet roles, identity::ParseRoles(arguments.roles));
  const auto token = identity::JoinToken::Generate(authority.certificate().PublicKeyHash());
  v1::JoinToken record;
  record.set_secret_hash(identity::HashOfSecret(token.secret));
  record.set_roles(identity::FormatRoles(roles));
  record.set_uses_left(arguments.uses);
  record.set_created_unix_ms(base::ToUnixMs(now));
  expires_unix_ms = base::ToUnixMs(now) + absl::ToInt64Milliseconds(life);
  record.set_expires_unix_ms(expires_unix_ms);
  record.set_creator("init");
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(record, &json).ok())
    return absl::InternalError("a join token cannot be written as JSON");
  ONEPIECE_RETURN_IF_ERROR(
      identity::WriteSecretFile(folders.manager_identity + "/" + kJoinTokenFile, json + "\n"));
  return token.Format();
}

absl::Status WriteManagerConfig(const InitArguments& arguments, const InitFolders& folders) {
  v1::NodeManagerConfig config;
  config.set_cluster_id(arguments.cluster);
  config.mutable_node()->set_node_id(kFirstManager);
  config.mutable_node()->set_listen(arguments.listen);
  config.mutable_node()->set_advertise(arguments.advertise);
  config.mutable_node()->set_data_dir(folders.manager);
  return identity::WriteSecretFile(folders.config, config::ToYaml(config));
}

std::string InitText(const std::string& start, const std::string& join, const std::string& use,
                     const std::string& until, const InitArguments& arguments) {
  return absl::StrCat("Cluster ", arguments.cluster,
                      " is ready to begin. Start its NodeManager on this host:\n\n  ", start,
                      "\n\nOn each other host (", arguments.roles, "; ", arguments.uses,
                      " nodes in all, until ", until, "), with a --role:\n\n  ", join,
                      "\n\nTo administer it from here:\n\n  ", use, "\n");
}

int RunInit(const Context& context, const InitArguments& arguments) {
  const InitFolders folders = FoldersIn(context.data_dir);
  const absl::Status checked = CheckInit(arguments, folders);
  if (!checked.ok()) return context.Fail(checked);
  const base::WallTime now = base::SystemClock().WallNow();
  const auto authority = identity::Authority::Create(arguments.cluster, now);
  if (!authority.ok()) return context.Fail(authority.status());
  const absl::Status made = MakeManager(*authority, arguments, folders, now);
  if (!made.ok()) return context.Fail(made);
  std::int64_t expires = 0;
  const auto token = MakeFirstToken(*authority, arguments, folders, now, expires);
  if (!token.ok()) return context.Fail(token.status());
  const auto admin = MakeAdmin(*authority, arguments, folders, now);
  if (!admin.ok()) return context.Fail(admin.status());
  const absl::Status written = WriteManagerConfig(arguments, folders);
  if (!written.ok()) return context.Fail(written);

  const std::string& address = arguments.advertise.empty() ? arguments.listen : arguments.advertise;
  const std::string start = "onepiece-nodemanager --config " + identity::ShellWord(folders.config);
  const std::string join = JoinLine(address, *token);
  const std::string use =
      absl::StrCat("onepiece context add ", arguments.cluster, " --nodemanager ", address,
                   " --identity ", identity::ShellWord(folders.admin));
  const identity::IdentityFiles files = identity::FilesOf(folders.admin, identity::kAdminName);
  context.Print(
      {{"cluster", arguments.cluster},
       {"config", folders.config},
       {"start", start},
       {"join", join},
       {"token", *token},
       {"token_expires_unix_ms", expires},
       {"tls", {{"ca", files.authorities}, {"certificate", files.certificate}, {"key", files.key}}},
       {"admin_expires", identity::FormatTime(admin->not_after())}},
      InitText(start, join, use, TimeText(expires) + " UTC", arguments));
  if (service::IsLoopback(address))
    context.Say("Only this host can reach " + address + ": --listen HOST:PORT names another.");
  return terminal::kOk;
}

}  // namespace

void DefineInit(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<InitArguments>();
  verb.add_option("cluster", arguments->cluster, "The cluster's id")->required();
  verb.add_option("--listen", arguments->listen, "Where the NodeManager listens: HOST:PORT")
      ->capture_default_str();
  verb.add_option("--advertise", arguments->advertise, "What others dial (default: as --listen)");
  verb.add_option("--role", arguments->roles, "What the first token lets hosts be")
      ->capture_default_str();
  verb.add_option("--uses", arguments->uses, "How many nodes it lets in")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  verb.add_option("--expires", arguments->expires, "How long it is valid: 1h, 1d")
      ->type_name("SPAN")
      ->capture_default_str();
  verb.footer(
      "A cluster on this machine alone needs none of this: `onepiece up`. Whoever reads\n"
      "DATA_DIR/nodemanager-1/identity can become any node of the cluster.");
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunInit(context, *arguments); };
  });
}

}  // namespace onepiece::cli
