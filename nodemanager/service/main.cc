// onepiece-nodemanager: knows the cluster, assigns stages to instances, and hands out routing
// tables.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/seconds.h"
#include "cluster/config/yaml.h"
#include "cluster/identity/subject.h"
#include "cluster/node/node_agent.h"
#include "cluster/rpc/door.h"
#include "cluster/service/program.h"
#include "cluster/workflow/workflow_check.h"
#include "nodemanager/replication/replicated_log.h"
#include "nodemanager/service/audit_file.h"
#include "nodemanager/service/config_service.h"
#include "nodemanager/service/consensus_service.h"
#include "nodemanager/service/controller.h"
#include "nodemanager/service/elasticity_service.h"
#include "nodemanager/service/export_metrics.h"
#include "nodemanager/service/identity_keeper.h"
#include "nodemanager/service/identity_service.h"
#include "nodemanager/service/node_manager_service.h"
#include "nodemanager/service/replica_health.h"
#include "nodemanager/service/seats.h"
#include "nodemanager/service/settings.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::nodemanager {
namespace {

constexpr auto kReadyLimit = std::chrono::seconds(10);
constexpr auto kStepDownLimit = std::chrono::milliseconds(500);
constexpr auto kDialLimit = std::chrono::milliseconds(300);

// Fills in the defaults, and checks the configuration.
absl::Status CheckElasticity(v1::ElasticityConfig& config) {
  ONEPIECE_ASSIGN_OR_RETURN(config, CompleteElasticity(config));
  return MakePolicy(config).status();
}

absl::Status CheckConfig(v1::NodeManagerConfig& config, std::vector<v1::Workflow>& workflows,
                         std::vector<paxos::Seat>& seats) {
  v1::LivenessConfig liveness;
  liveness.set_report_interval_ms(config.report_interval_ms());
  liveness.set_dead_after_ms(config.dead_after_ms());
  liveness.set_forget_after_s(config.forget_after_s());
  const absl::StatusOr<v1::LivenessConfig> complete = CompleteLiveness(liveness);
  if (!complete.ok()) return service::BadConfig(base::Message(complete.status()));
  config.set_report_interval_ms(complete->report_interval_ms());
  config.set_dead_after_ms(complete->dead_after_ms());
  config.set_forget_after_s(complete->forget_after_s());
  const std::string& id = config.cluster_id();
  if (id.size() > 63 || !std::all_of(id.begin(), id.end(),
                                     [](unsigned char c) { return std::isalnum(c) || c == '-'; })) {
    return service::BadConfig("cluster_id: at most 63 letters, digits and '-'");
  }
  auto parsed =
      ParseSeats({config.replicas().begin(), config.replicas().end()}, config.node().node_id());
  if (!parsed.ok()) return service::BadConfig(base::Message(parsed.status()));
  seats = *std::move(parsed);
  if (const absl::Status status = CheckElasticity(*config.mutable_elasticity()); !status.ok())
    return service::BadConfig(absl::StrCat("elasticity: ", base::Message(status)));
  for (const std::string& file : config.workflow_files()) {
    v1::Workflow& workflow = workflows.emplace_back();
    ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(file, &workflow));
    if (const absl::Status status = workflow::CheckWorkflow(workflow); !status.ok())
      return base::Annotate(status, file);
  }
  return absl::OkStatus();
}

ReplicatedLogOptions LogOptions(const v1::NodeManagerConfig& config,
                                const std::vector<paxos::Seat>& seats,
                                telemetry::Metrics& metrics) {
  ReplicatedLogOptions options{.data_dir = config.node().data_dir(),
                               .cluster_id = config.cluster_id(),
                               .name = config.node().node_id(),
                               .seats = seats,
                               .bootstrap = config.bootstrap(),
                               .observers = MakeObservers(metrics)};
  options.paxos.version = kCommandVersion;
  for (base::Duration* duration :
       {&options.paxos.heartbeat, &options.paxos.election_min, &options.paxos.election_max,
        &options.paxos.lease, &options.propose_timeout}) {
    *duration = base::Scaled(*duration);
  }
  return options;
}

// Warns of settings that work but were hardly meant.
void WarnOfReplicas(const std::vector<paxos::Seat>& seats, const service::Host& host) {
  if (seats.size() > 1 && seats.size() != 3 && seats.size() != 5)
    spdlog::warn("op=replicas detail=\"{} replicas; 3 or 5 are best\"", seats.size());
  for (const paxos::Seat& seat : seats) {
    if (seat.name == host.node().node_id() && seat.address != host.address()) {
      spdlog::warn("op=replicas detail=\"replicas says {}, but this NodeManager is reached at {}\"",
                   seat.address, host.address());
    }
  }
}

// Waits until this replica is ready. A replica that votes alone is ready when it leads and is a
// READY node, so that whoever waits for the ready file can work at once. Other replicas need their
// peers for that, and are ready when they serve.
absl::Status WaitUntilReady(const ReplicatedLog& log, Controller& controller,
                            const node::ClusterView& view, base::Clock& clock) {
  const base::MonotonicTime deadline = clock.Now() + base::Scaled(kReadyLimit);
  const v1::Endpoint self = view.self();
  bool ready = !log.IsAlone();
  while (!ready) {
    const std::uint64_t version = controller.version();
    controller.Read([&](const StateMachine& state) {
      const auto known = state.nodes().find(self.node_id());
      ready = known != state.nodes().end() &&
              known->second.node().incarnation() == view.incarnation() &&
              known->second.node().state() == v1::Node::READY;
    });
    if (ready) break;
    if (clock.Now() >= deadline) {
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "NOT_READY",
                             absl::StrCat("this NodeManager does not lead: ",
                                          base::Message(controller.Term().status())));
    }
    controller.WaitForChange(version, {}, clock, deadline);
  }
  return absl::OkStatus();
}

node::NodeAgentOptions AgentOptions(service::Host& host, const ReplicatedLog& log) {
  node::NodeAgentOptions options =
      node::MakeNodeAgentOptions(v1::NODE_MANAGER, host.node(), host.address(),
                                 host.metrics_address(), host.metrics(), host.door());
  options.nodemanagers = log.Addresses();
  return options;
}

// A cluster is called as its certificates say. Under another name no certificate would be believed.
absl::Status TakeClusterId(const rpc::Door& door, v1::NodeManagerConfig& config) {
  if (config.cluster_id().empty()) config.set_cluster_id(door.cluster());
  if (config.cluster_id() == door.cluster()) return absl::OkStatus();
  return service::BadConfig(absl::StrCat("cluster_id is '", config.cluster_id(),
                                         "', and the certificate in ", config.node().identity(),
                                         " is of cluster '", door.cluster(), "'"));
}

// What the controller needs of the configuration.
ControllerOptions OptionsOf(const v1::NodeManagerConfig& config,
                            const std::vector<v1::Workflow>& workflows,
                            telemetry::Metrics& metrics) {
  ControllerOptions options;
  options.on_commit = [&commits = CommitHistogram(metrics)](base::Duration took) {
    commits.Observe(base::ToSeconds(took));
  };
  options.report_interval = base::Scaled(std::chrono::milliseconds(config.report_interval_ms()));
  options.dead_after = base::Scaled(std::chrono::milliseconds(config.dead_after_ms()));
  options.forget_after = base::Scaled(std::chrono::seconds(config.forget_after_s()));
  options.workflows = workflows;
  options.elasticity = config.elasticity();
  options.author = absl::StrCat("files:", config.node().node_id());
  return options;
}

absl::StatusOr<AuditFile> OpenAuditFile(const v1::NodeManagerConfig& config) {
  return AuditFile::Open({.path = config.node().data_dir() + "/audit.jsonl"});
}

absl::Status Run(v1::NodeManagerConfig config, const std::vector<v1::Workflow>& workflows,
                 const std::vector<paxos::Seat>& seats, service::Host& host) {
  base::Clock& clock = base::SystemClock();
  if (host.door() != nullptr) ONEPIECE_RETURN_IF_ERROR(TakeClusterId(*host.door(), config));
  ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<ReplicatedLog> log,
                            ReplicatedLog::Open(LogOptions(config, seats, host.metrics()), clock));
  ControllerOptions controlled = OptionsOf(config, workflows, host.metrics());
  controlled.cluster_id = [&] { return log->cluster_id(); };
  Controller controller(*log, clock, std::move(controlled));
  log->OnRole([&](bool) { controller.OnRole(); });
  const auto tell_health = [&host](ReplicaFitness fitness) {
    SetHealth(fitness,
              [&](const std::string& name, bool serving) { host.SetHealth(name, serving); });
  };
  log->OnFitness(tell_health);
  NodeManagerService service(
      controller, host.stopping(),
      {.watches = {.available_level = [&] { return log->Status().common_version(); }},
       .addresses = [&] { return log->Addresses(); },
       .read_only = config.node().read_only(),
       .door = host.door(),
       .dial_limit = base::Scaled(kDialLimit)},
      clock);
  const bool read_only = config.node().read_only();
  ElasticityService elasticity(controller, read_only, host.door());
  ConfigService configuration(controller, read_only, host.door());
  ConsensusService consensus(
      *log, read_only, [&] { controller.Notify(); }, host.door());
  const auto addresses = [&] { return log->Addresses(); };
  IdentityKeeper keeper(
      controller, clock,
      {.folder = host.node().identity(), .door = host.door(), .addresses = addresses});
  IdentityService identities(controller, keeper,
                             {.door = host.door(), .read_only = read_only, .addresses = addresses});
  if (host.door() != nullptr) consensus.SetSealKey([&] { return keeper.SealKey(); });
  ONEPIECE_ASSIGN_OR_RETURN(AuditFile audit, OpenAuditFile(config));
  ExportMetrics(controller, service, *log, host.metrics());
  // Services come before the log: replicas that begin a group ask each other's ConsensusService
  // first.
  ONEPIECE_RETURN_IF_ERROR(host.Serve(
      {&service, &elasticity, &configuration, &consensus, &identities, &log->service()}));
  WarnOfReplicas(seats, host);
  tell_health({});
  absl::Status status = log->Start(host.address());
  controller.Start();
  keeper.Start();
  std::jthread audit_writer = FollowAudit(controller, std::move(audit), clock);
  node::ClusterView view;
  node::NodeAgent agent(AgentOptions(host, *log), view);
  agent.SetState({.state = v1::Node::READY});
  if (status.ok()) agent.Start();
  if (status.ok()) status = WaitUntilReady(*log, controller, view, clock);
  if (status.ok()) status = host.ReportReady();
  if (status.ok()) {
    host.WaitForShutdown();
    // It fails when this replica is alone or does not lead. Then there is nothing to hand over.
    (void)log->StepDown(kStepDownLimit);
  }
  // The services still answer here. log->Stop() releases the handlers that wait in Propose(), so
  // StopServing() need not wait for them.
  agent.Stop();
  audit_writer = {};
  keeper.Stop();
  controller.Stop();
  log->Stop();
  host.StopServing();  // After this no call is inside the services, so they may be destroyed.
  return status;
}

}  // namespace
}  // namespace onepiece::nodemanager

int main(int argc, char** argv) {
  namespace nodemanager = onepiece::nodemanager;
  namespace service = onepiece::service;
  onepiece::v1::NodeManagerConfig config;
  std::vector<onepiece::v1::Workflow> workflows;
  std::vector<onepiece::paxos::Seat> seats;
  service::ServiceOptions options(
      {.program = "onepiece-nodemanager",
       .role = "nodemanager",
       .description = "Knows the cluster, assigns stages and hands out the routing.",
       .nodemanagers = service::NodeManagers::kNotUsed},
      &config);
  options.Bind("--cluster-id", "cluster_id", "Name of a new cluster; default: a random one");
  options.Bind("--workflow-file", "workflow_files",
               "Applications to begin with (YAML), comma separated");
  options.Bind(
      "--replicas", "replicas",
      "name=host:port of every replica of a new group, this one included, comma separated");
  options.Bind("--bootstrap", "bootstrap",
               "Begin a new group when the data folder is empty, and all other replicas say that "
               "theirs are");
  options.Bind("--dead-after-ms", "dead_after_ms",
               "A node that has not reported for so long is dead");
  options.Bind("--forget-after-s", "forget_after_s",
               "A node that has been dead for so long is forgotten (default 86400)");
  options.BindReadOnly();
  return service::RunProgram(
      options, argc, argv,
      [&](service::Host& host) { return nodemanager::Run(config, workflows, seats, host); },
      [&] { return nodemanager::CheckConfig(config, workflows, seats); });
}
