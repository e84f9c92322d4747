#include "cluster/cli/context.h"

#include "cluster/base/status.h"
#include "cluster/local/control.h"

namespace onepiece::cli {

absl::StatusOr<std::unique_ptr<client::Client>> Context::MakeClient() const {
  client::ClientOptions options;
  options.nodemanagers = nodemanagers;
  options.proxies = proxies;
  if (options.nodemanagers.empty() && options.proxies.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(const local::ClusterState state, local::FindCluster(data_dir));
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
