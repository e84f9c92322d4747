// onepiece-database: one instance of the results database.
#include <atomic>

#include "cluster/database/database_node.h"
#include "cluster/node/node_agent.h"
#include "cluster/service/program.h"

namespace onepiece::database {
namespace {

absl::Status Run(const v1::DatabaseConfig& config, service::Host& host) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<fabric::Fabric> fabric,
                            fabric::Fabric::Open(config.node().fabric()));
  // The agent needs the server's address, and the server's services need the agent's view of the
  // cluster.
  std::unique_ptr<node::NodeAgent> agent;
  std::atomic<node::NodeAgent*> agent_now{nullptr};
  const auto nobody = std::make_shared<const node::Routing>();
  DatabaseNodeOptions options = OptionsFrom(config);
  options.routing = [&agent_now, nobody] {
    const node::NodeAgent* known = agent_now;
    return known == nullptr ? nobody : known->routing();
  };
  options.cluster_id = [&agent_now] {
    const node::NodeAgent* known = agent_now;
    return known == nullptr ? std::string() : known->cluster_id();
  };
  options.inbox.incarnation = [&agent_now]() -> std::uint64_t {
    const node::NodeAgent* known = agent_now;
    return known == nullptr ? 0 : known->incarnation();
  };
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::unique_ptr<DatabaseNode> database,
      DatabaseNode::Open(std::move(options), *fabric, host.metrics(), host.spans()));
  if (absl::Status served = host.Serve(database->services()); !served.ok()) {
    host.StopServing();  // Half of it may be up, on services that end with this function.
    return served;
  }
  agent = std::make_unique<node::NodeAgent>(node::NodeAgentOptions{
      .role = v1::DATABASE,
      .node_id = config.node().node_id(),
      .nodemanagers = {config.node().nodemanagers().begin(), config.node().nodemanagers().end()},
      .address = host.address(),
      .metrics_address = host.metrics_address(),
      .workflow_set = config.node().workflow_set()});
  agent->SetLoadSource([&database] { return database->load(); });
  agent->SetState({.state = v1::Node::READY});
  agent_now = agent.get();
  database->Start();
  agent->Start();
  absl::Status status = host.ReportReady();
  if (status.ok()) host.WaitForShutdown();
  agent->Stop();
  database->Stop();
  host.StopServing();
  return status;
}

}  // namespace
}  // namespace onepiece::database

int main(int argc, char** argv) {
  onepiece::v1::DatabaseConfig config;
  onepiece::service::ServiceOptions options(
      {.program = "onepiece-database",
       .role = "database",
       .description = "Keeps job records and results in memory."},
      &config);
  options.Bind("--budget-bytes", "budget_bytes", "Bytes of results to hold at most");
  options.Bind("--max-records", "max_records", "Job records to hold at most");
  return onepiece::service::RunProgram(options, argc, argv, [&](onepiece::service::Host& host) {
    return onepiece::database::Run(config, host);
  });
}
