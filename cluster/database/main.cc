// onepiece-database: one instance of the results database.
#include <malloc.h>

#include "absl/strings/str_cat.h"
#include "cluster/database/database_node.h"
#include "cluster/node/node_agent.h"
#include "cluster/service/program.h"

namespace onepiece::database {
namespace {

constexpr int kMaxCopies = 16;

// A folder belongs to one cluster, so which one this is must be known first: from the NodeManager.
absl::Status Recover(const v1::DatabaseConfig& config, service::Host& host,
                     const node::ClusterView& view, DatabaseNode& database) {
  if (config.node().data_dir().empty()) return absl::OkStatus();
  while (view.cluster_id().empty()) {
    if (host.WaitForShutdown(std::chrono::milliseconds(20))) return absl::OkStatus();
  }
  return database.Recover(view.cluster_id());
}

absl::Status Run(const v1::DatabaseConfig& config, service::Host& host) {
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::unique_ptr<fabric::Fabric> fabric,
      fabric::Fabric::Open(config.node().fabric(), base::SystemClock(),
                           {fabric::FrameProtection(config.node().protect())}));
  node::ClusterView view;
  DatabaseNodeOptions options = OptionsFrom(config);
  options.door = host.door();
  ONEPIECE_ASSIGN_OR_RETURN(
      const std::unique_ptr<DatabaseNode> database,
      DatabaseNode::Open(view, std::move(options), *fabric, host.metrics(), host.spans()));
  ONEPIECE_RETURN_IF_ERROR(host.Serve(database->services()));
  node::NodeAgent agent(
      node::MakeNodeAgentOptions(v1::DATABASE, config.node(), host.address(),
                                 host.metrics_address(), host.metrics(), host.door()),
      view);
  // The agent starts before Recover(), because only the NodeManager tells which cluster this is.
  // The node stays STARTING until then.
  agent.SetLoadSource([&database] { return database->load(); });
  agent.OnLimits(
      [&database](const v1::LimitsConfig& limits) { database->Follow(limits.databases()); });
  agent.Start();
  absl::Status status = Recover(config, host, view, *database);
  if (status.ok()) {
    database->Start();
    agent.SetState({.state = v1::Node::READY});
    status = host.ReportReady();
  }
  if (status.ok()) host.WaitForShutdown();
  // The node leaves the routing before it stops answering. database->Stop() ends the streams, for
  // whose handlers StopServing() would wait otherwise.
  agent.Stop();
  database->Stop();
  host.StopServing();
  return status;
}

absl::Status CheckConfig(const v1::DatabaseConfig& config) {
  if (config.budget_bytes() < 0 || config.max_records() < 0 || config.tombstone_ttl_s() < 0 ||
      config.spill_budget_bytes() < 0) {
    return service::BadConfig(
        "budget_bytes, max_records, tombstone_ttl_s, spill_budget_bytes: not below 0");
  }
  if (config.copies() < 0 || config.copies() > kMaxCopies)
    return service::BadConfig(absl::StrCat("copies: 1 to ", kMaxCopies));
  if (config.when_full() == v1::WHEN_FULL_SPILL && config.node().data_dir().empty()) {
    return service::BadConfig(
        "when_full: spill needs a folder for its files: set node.data_dir (--data-dir)");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace onepiece::database

namespace {

// Records come and go by the thousand: memory is taken and given back in large steps, where the C
// library would ask the kernel for a page at a time (a tenth of the work for a result of 64 KiB).
void TakeMemoryInLargeSteps() {
  constexpr int kMiB = 1 << 20;
  mallopt(M_TOP_PAD, 4 * kMiB);
  mallopt(M_TRIM_THRESHOLD, 64 * kMiB);
}

}  // namespace

int main(int argc, char** argv) {
  TakeMemoryInLargeSteps();
  onepiece::v1::DatabaseConfig config;
  onepiece::service::ServiceOptions options(
      {.program = "onepiece-database",
       .role = "database",
       .description = "Keeps job records and results in memory.",
       .needs_data_dir = false},
      &config);
  options.Bind("--budget-bytes", "budget_bytes", "Bytes of results to hold at most");
  options.Bind("--max-records", "max_records", "Job records to hold at most");
  options.Bind("--copies", "copies", "Databases that hold each job");
  options.Bind("--acknowledge", "acknowledge",
               "When a result counts: all (copies that can be made now are made) or first");
  options.Bind("--when-full", "when_full",
               "What gives way when --budget-bytes are used: evict (results that were sent once), "
               "reject (new results) or spill (the oldest, to files)");
  options.Bind("--spill-budget-bytes", "spill_budget_bytes",
               "Bytes of files that spill may write, below --data-dir");
  options.BindReadOnly();
  return onepiece::service::RunProgram(
      options, argc, argv,
      [&](onepiece::service::Host& host) { return onepiece::database::Run(config, host); },
      [&] { return onepiece::database::CheckConfig(config); });
}
