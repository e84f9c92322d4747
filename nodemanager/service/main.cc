// onepiece-nodemanager: knows the cluster, assigns stages to instances and hands out the routing.
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/config/yaml.h"
#include "cluster/service/program.h"
#include "cluster/workflow/workflow_check.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/export_metrics.h"
#include "nodemanager/service/node_manager_service.h"
#include "nodemanager/state/local_log.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::nodemanager {
namespace {

constexpr int kDefaultReportIntervalMs = 500;
constexpr int kDefaultDeadAfterMs = 3000;

absl::Status CheckConfig(v1::NodeManagerConfig& config, std::vector<v1::Workflow>& workflows) {
  if (config.report_interval_ms() == 0) config.set_report_interval_ms(kDefaultReportIntervalMs);
  if (config.dead_after_ms() == 0) config.set_dead_after_ms(kDefaultDeadAfterMs);
  if (config.report_interval_ms() < 10 ||
      config.dead_after_ms() < 2 * config.report_interval_ms()) {
    return service::BadConfig("report_interval_ms: at least 10, and at most half of dead_after_ms");
  }
  const std::string& id = config.cluster_id();
  if (id.size() > 63 || !std::all_of(id.begin(), id.end(),
                                     [](unsigned char c) { return std::isalnum(c) || c == '-'; })) {
    return service::BadConfig("cluster_id: at most 63 letters, digits and '-'");
  }
  for (const std::string& file : config.workflow_files()) {
    v1::Workflow& workflow = workflows.emplace_back();
    ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(file, &workflow));
    if (const absl::Status status = workflow::CheckWorkflow(workflow); !status.ok())
      return base::Annotate(status, file);
  }
  return absl::OkStatus();
}

// Makes this NodeManager a node of its own cluster, for all who look at the cluster.
absl::Status RegisterSelf(const service::Host& host, Controller& controller) {
  const auto now = base::SystemClock().WallNow().time_since_epoch();
  v1::Command command;
  v1::Node& node = *command.mutable_register_node();
  node.set_node_id(host.node().node_id());
  node.set_role(v1::NODE_MANAGER);
  node.set_incarnation(static_cast<std::uint64_t>(now / std::chrono::nanoseconds(1)));
  node.set_address(host.address());
  node.set_metrics_address(host.metrics_address());
  node.set_pid(getpid());
  node.set_workflow_set(host.node().workflow_set());
  v1::Command ready;
  v1::SetNodeState& state = *ready.mutable_set_node_state();
  state.set_node_id(node.node_id());
  state.set_incarnation(node.incarnation());
  state.set_state(v1::Node::READY);
  ONEPIECE_RETURN_IF_ERROR(controller.Propose(std::move(command)).status());
  return controller.Propose(std::move(ready)).status();
}

absl::Status Run(const v1::NodeManagerConfig& config, const std::vector<v1::Workflow>& workflows,
                 service::Host& host) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<LocalLog> log,
                            LocalLog::Open(config.node().data_dir()));
  Controller controller(
      *log, base::SystemClock(),
      {.dead_after = base::Scaled(std::chrono::milliseconds(config.dead_after_ms()))});
  ONEPIECE_RETURN_IF_ERROR(controller.Initialize(config.cluster_id()));
  for (const v1::Workflow& workflow : workflows) {
    v1::Command command;
    *command.mutable_apply_workflow() = workflow;
    ONEPIECE_RETURN_IF_ERROR(controller.Propose(std::move(command)).status());
  }
  const auto report_interval = base::Scaled(std::chrono::milliseconds(config.report_interval_ms()));
  NodeManagerService service(
      controller, host.stopping(),
      {.report_interval_ms = static_cast<int>(report_interval / std::chrono::milliseconds(1))});
  ExportMetrics(controller, service, host.metrics());
  absl::Status status = host.Serve({&service});
  if (status.ok()) status = RegisterSelf(host, controller);
  controller.Start();
  if (status.ok()) status = host.ReportReady();
  if (status.ok()) host.WaitForShutdown();
  controller.Stop();
  host.StopServing();  // No call is inside the service afterwards, whatever ended it.
  return status;
}

}  // namespace
}  // namespace onepiece::nodemanager

int main(int argc, char** argv) {
  namespace nodemanager = onepiece::nodemanager;
  namespace service = onepiece::service;
  onepiece::v1::NodeManagerConfig config;
  std::vector<onepiece::v1::Workflow> workflows;
  service::ServiceOptions options(
      {.program = "onepiece-nodemanager",
       .role = "nodemanager",
       .description = "Knows the cluster, assigns stages and hands out the routing.",
       .nodemanagers = service::NodeManagers::kNotUsed},
      &config);
  options.Bind("--cluster-id", "cluster_id", "Name of a new cluster; default: a random one");
  options.Bind("--workflow-file", "workflow_files",
               "Applications to begin with (YAML), comma separated");
  options.Bind("--dead-after-ms", "dead_after_ms",
               "A node that has not reported for so long is dead");
  return service::RunProgram(
      options, argc, argv,
      [&](service::Host& host) { return nodemanager::Run(config, workflows, host); },
      [&] { return nodemanager::CheckConfig(config, workflows); });
}
