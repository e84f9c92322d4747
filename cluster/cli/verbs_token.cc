// The verbs token create, list and revoke.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "cluster/cli/identity_output.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/time_arguments.h"
#include "cluster/cli/verbs.h"
#include "cluster/identity/role.h"
#include "cluster/identity/scope.h"
#include "cluster/local/control.h"
#include "cluster/rpc/caller.h"

namespace onepiece::cli {
namespace {

struct TokenArguments {
  std::string name, scopes, app, tenant, quota, expires, roles, id, reason;
  bool join = false;
  std::uint32_t uses = 1;
};

absl::StatusOr<v1::CreateTokenRequest> BearerRequest(const TokenArguments& arguments) {
  if (arguments.name.empty() || arguments.scopes.empty())
    return terminal::UsageError("--name and --scope are needed (or --join and --role)");
  if (!arguments.roles.empty()) return terminal::UsageError("--role is for --join");
  ONEPIECE_ASSIGN_OR_RETURN(const identity::ScopeSet scopes,
                            identity::ParseScopes(arguments.scopes));
  v1::CreateTokenRequest request;
  v1::BearerToken& bearer = *request.mutable_bearer();
  bearer.set_name(arguments.name);
  bearer.set_tenant(arguments.tenant.empty() ? identity::kDefaultTenant : arguments.tenant);
  bearer.set_scopes(identity::FormatScopes(scopes));
  bearer.set_app_id(arguments.app);
  if (!arguments.quota.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(*request.mutable_quota(), ParseQuota(arguments.quota));
  }
  return request;
}

absl::StatusOr<v1::CreateTokenRequest> JoinRequest(const TokenArguments& arguments) {
  for (const auto& [flag, value] : {std::pair{"--name", &arguments.name},
                                    {"--scope", &arguments.scopes},
                                    {"--app", &arguments.app},
                                    {"--tenant", &arguments.tenant},
                                    {"--quota", &arguments.quota}}) {
    if (!value->empty()) return terminal::UsageError(absl::StrCat(flag, " is not for --join"));
  }
  if (arguments.roles.empty()) return terminal::UsageError("--join needs --role");
  ONEPIECE_ASSIGN_OR_RETURN(const identity::RoleSet roles, identity::ParseRoles(arguments.roles));
  v1::CreateTokenRequest request;
  request.mutable_join()->set_roles(identity::FormatRoles(roles));
  request.mutable_join()->set_uses_left(arguments.uses);
  return request;
}

/// Where a new host finds the cluster: the leader's address, or whatever the caller used.
std::string JoinAddress(const Context& context, client::Client& client) {
  for (const client::ReplicaAnswer& replica : client.AskReplicas()) {
    if (replica.status.ok()) return replica.address;
  }
  if (!context.nodemanagers.empty()) return context.nodemanagers.front();
  const auto state = local::FindCluster(context.data_dir);
  return state.ok() && !state->nodemanagers.empty() ? state->nodemanagers.front() : "HOST:PORT";
}

int RunCreateToken(const Context& context, client::Client& client,
                   const TokenArguments& arguments) {
  auto request = arguments.join ? JoinRequest(arguments) : BearerRequest(arguments);
  if (!request.ok()) return context.Fail(request.status());
  if (!arguments.expires.empty()) {
    const auto life = ParseSpan("--expires", arguments.expires);
    if (!life.ok()) return context.Fail(life.status());
    request->set_life_s(std::max<std::int64_t>(1, absl::ToInt64Seconds(*life)));
  }
  request->set_reason(arguments.reason);
  const auto created = client.CreateToken(*request);
  if (!created.ok()) return context.Fail(created.status());
  Json document = {{"id", created->id()},
                   {"token", created->token()},
                   {"expires_unix_ms", created->expires_unix_ms()}};
  const std::string expires = TimeText(created->expires_unix_ms()) + " UTC";
  if (arguments.join) {
    const std::string line = JoinLine(JoinAddress(context, client), created->token());
    document["join"] = line;
    context.Print(document, line + "\n");
    context.Say(absl::StrCat("Token ", created->id(), " lets in ", request->join().uses_left(),
                             request->join().uses_left() == 1 ? " node" : " nodes", " (",
                             request->join().roles(), ") until ", expires,
                             ". It is not shown again."));
    return terminal::kOk;
  }
  context.Print(document, created->token() + "\n");
  context.Say(absl::StrCat("Token ", created->id(), " of ", request->bearer().name(), " in tenant ",
                           request->bearer().tenant(), " (", request->bearer().scopes(), ") until ",
                           expires, ". It is not shown again."));
  return terminal::kOk;
}

Json BearerDocument(const v1::BearerToken& token, const std::string& id) {
  return {{"id", id},
          {"kind", "bearer"},
          {"name", token.name()},
          {"tenant", token.tenant()},
          {"scopes", std::vector<std::string>(absl::StrSplit(token.scopes(), ','))},
          {"app", token.app_id().empty() ? Json(nullptr) : Json(token.app_id())},
          {"expires_unix_ms", token.expires_unix_ms()},
          {"created_unix_ms", token.created_unix_ms()},
          {"creator", token.creator()}};
}

Json JoinDocument(const v1::JoinToken& token, const std::string& id) {
  return {{"id", id},
          {"kind", "join"},
          {"roles", std::vector<std::string>(absl::StrSplit(token.roles(), ','))},
          {"uses_left", token.uses_left()},
          {"expires_unix_ms", token.expires_unix_ms()},
          {"created_unix_ms", token.created_unix_ms()},
          {"creator", token.creator()}};
}

int RunListTokens(const Context& context, client::Client& client,
                  const TokenArguments& /*arguments*/) {
  const auto tokens = client.ListTokens();
  if (!tokens.ok()) return context.Fail(tokens.status());
  Json document = {{"tokens", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"ID", "KIND", "NAME", "TENANT", "ALLOWS", "EXPIRES (UTC)", "MADE BY"}};
  for (int i = 0; i < tokens->bearer_tokens_size(); ++i) {
    const v1::BearerToken& token = tokens->bearer_tokens(i);
    const std::string id = i < tokens->bearer_ids_size() ? tokens->bearer_ids(i) : "";
    document["tokens"].push_back(BearerDocument(token, id));
    rows.push_back({id, "bearer", token.name(), token.tenant(),
                    token.scopes() + (token.app_id().empty() ? "" : " on " + token.app_id()),
                    TimeText(token.expires_unix_ms()), token.creator()});
  }
  for (int i = 0; i < tokens->join_tokens_size(); ++i) {
    const v1::JoinToken& token = tokens->join_tokens(i);
    const std::string id = i < tokens->join_ids_size() ? tokens->join_ids(i) : "";
    document["tokens"].push_back(JoinDocument(token, id));
    rows.push_back({id, "join", "", "", absl::StrCat(token.roles(), " x", token.uses_left()),
                    TimeText(token.expires_unix_ms()), token.creator()});
  }
  context.Print(document, Table(rows));
  return terminal::kOk;
}

int RunRevokeToken(const Context& context, client::Client& client,
                   const TokenArguments& arguments) {
  v1::RevokeTokenRequest request;
  request.set_id(arguments.id);
  request.set_reason(arguments.reason);
  const absl::Status revoked = client.RevokeToken(request);
  if (!revoked.ok()) return context.Fail(revoked);
  context.Print({{"id", arguments.id}, {"revoked", true}},
                absl::StrCat("Token ", arguments.id, " is revoked.\n"));
  return terminal::kOk;
}

void AddCreateTokenOptions(CLI::App& verb, TokenArguments& arguments) {
  verb.add_option("--name", arguments.name, "The principal that the token stands for");
  verb.add_option("--scope", arguments.scopes,
                  "submit, read-own, read, cancel-own, operate, admin; several with commas");
  verb.add_option("--tenant", arguments.tenant, "Whose jobs it makes and sees (default: default)");
  verb.add_option("--app", arguments.app, "Only for jobs of this application");
  verb.add_option(
      "--quota", arguments.quota,
      "What the tenant may use: jobs=4,rate=2/s,worker-seconds=3600/h,bytes=10G, or none "
      "(default: as it is)");
  verb.add_flag("--join", arguments.join, "A token for hosts that join; prints their command");
  verb.add_option("--role", arguments.roles,
                  "With --join: nodemanager, proxy, instance, database, gateway, agent; several "
                  "with commas");
  verb.add_option("--uses", arguments.uses, "With --join: how many nodes it lets in")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  verb.add_option("--expires", arguments.expires,
                  "How long it is valid: 1h, 30d (default: 1 h with --join, else a day)")
      ->type_name("SPAN");
}

}  // namespace

void DefineToken(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  const auto arguments = std::make_shared<TokenArguments>();
  const auto with =
      [&context, arguments](int (*run)(const Context&, client::Client&, const TokenArguments&)) {
        return [&context, arguments, run](client::Client& client) {
          return run(context, client, *arguments);
        };
      };
  const auto add_reason = [&](CLI::App& to) {
    to.add_option("--reason", arguments->reason, "Why, for the audit log");
  };
  CLI::App* create = AddManagerVerb(verb, context, "create",
                                    "Make a token for a program, or with --join for new hosts; it "
                                    "is shown once",
                                    with(RunCreateToken));
  AddCreateTokenOptions(*create, *arguments);
  add_reason(*create);
  AddManagerVerb(verb, context, "list", "Every token that has not expired, without its secret",
                 with(RunListTokens));
  CLI::App* revoke = AddManagerVerb(
      verb, context, "revoke", "Make all nodes refuse a token, within 5 s", with(RunRevokeToken));
  revoke->add_option("id", arguments->id, "Its id (`token list`)")->required();
  add_reason(*revoke);
}

}  // namespace onepiece::cli
