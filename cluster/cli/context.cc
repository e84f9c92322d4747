#include "cluster/cli/context.h"

#include <algorithm>
#include <filesystem>

#include "cluster/base/status.h"
#include "cluster/contexts/contexts.h"
#include "cluster/contexts/credentials.h"
#include "cluster/local/control.h"
#include "cluster/local/identities.h"
#include "cluster/service/options.h"

namespace onepiece::cli {

namespace {

/// Whether people named this running cluster by the address of one of its processes.
bool HasOneOf(const local::ClusterState& state, const std::vector<std::string>& addresses) {
  return std::ranges::any_of(addresses, [&](const std::string& address) {
    return std::ranges::count(state.nodemanagers, address) > 0 ||
           std::ranges::count(state.processes, address, &local::ProcessRecord::address) > 0;
  });
}

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

absl::StatusOr<local::ClusterState> Present(const contexts::ClusterContext& named) {
  if (const absl::Status shown = contexts::Present(named.credentials); !shown.ok())
    return base::Annotate(shown, "context " + named.name);
  local::ClusterState state;
  state.nodemanagers = named.nodemanagers;
  state.identity = named.credentials.folder;
  return state;
}

}  // namespace

absl::StatusOr<local::ClusterState> Context::FindCluster() const {
  const bool remote = !nodemanagers.empty() || !proxies.empty();
  // What people say with the command counts before what they have said once and for all.
  const bool data_dir_given = data_dir != service::DefaultStateDir();
  if (!remote && (!context.empty() || !data_dir_given)) {
    ONEPIECE_ASSIGN_OR_RETURN(const contexts::Contexts all,
                              contexts::Load(contexts::DefaultPath()));
    if (!context.empty() || !all.current().empty()) {
      ONEPIECE_ASSIGN_OR_RETURN(const contexts::ClusterContext named, all.Find(context));
      return Present(named);
    }
  }
  absl::StatusOr<local::ClusterState> here = local::FindCluster(data_dir);
  if (!remote && !here.ok()) return here.status();
  const bool named =
      here.ok() && (!remote || HasOneOf(*here, nodemanagers) || HasOneOf(*here, proxies));
  std::string folder = identity;
  if (folder.empty() && named) folder = here->identity;
  if (folder.empty() && !named && IsFolder(data_dir + "/identity")) folder = data_dir + "/identity";
  ONEPIECE_RETURN_IF_ERROR(local::ShowIdentity(folder));
  if (!remote) return here;
  local::ClusterState state;
  state.nodemanagers = nodemanagers;
  state.identity = folder;
  return state;
}

absl::StatusOr<std::unique_ptr<client::Client>> Context::MakeClient() const {
  ONEPIECE_ASSIGN_OR_RETURN(const local::ClusterState state, FindCluster());
  client::ClientOptions options;
  options.nodemanagers = nodemanagers;
  options.proxies = proxies;
  if (options.nodemanagers.empty() && options.proxies.empty()) {
    options.nodemanagers = state.nodemanagers;
    // The supervisor knows the proxies, too. Jobs therefore need not wait until the NodeManager has
    // a leader.
    for (const local::ProcessRecord& record : state.processes) {
      if (record.role == "proxy" && !record.address.empty())
        options.proxies.push_back(record.address);
    }
  }
  return std::make_unique<client::Client>(options);
}

absl::StatusOr<std::unique_ptr<client::Client>> Context::MakeManagerClient() const {
  if (!nodemanagers.empty() || proxies.empty()) return MakeClient();
  const auto state = local::FindCluster(data_dir);
  if (!state.ok()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_NODEMANAGER",
                           "this verb asks the NodeManager, and only proxies are given: add "
                           "--nodemanager HOST:PORT (" +
                               base::Message(state.status()) + ")");
  }
  ONEPIECE_RETURN_IF_ERROR(local::ShowIdentity(identity.empty() ? state->identity : identity));
  client::ClientOptions options;
  options.nodemanagers = state->nodemanagers;
  options.proxies = proxies;
  return std::make_unique<client::Client>(options);
}

void OnManager(CLI::App& verb, Context& context, ManagerVerb run) {
  verb.callback([&context, run = std::move(run)] {
    context.action = [&context, run] {
      const auto client = context.MakeManagerClient();
      return client.ok() ? run(**client) : context.Fail(client.status());
    };
  });
}

CLI::App* AddManagerVerb(CLI::App& parent, Context& context, const std::string& name,
                         const std::string& help, ManagerVerb run) {
  CLI::App* verb = parent.add_subcommand(name, help);
  OnManager(*verb, context, std::move(run));
  return verb;
}

}  // namespace onepiece::cli
