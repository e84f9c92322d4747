// The verbs up, down and status, and the hidden verb of the supervisor.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/base/generation.h"
#include "cluster/base/logging.h"
#include "cluster/base/status.h"
#include "cluster/cli/node_output.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/verbs.h"
#include "cluster/client/cluster_notes.h"
#include "cluster/client/replicas.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/local/control.h"
#include "cluster/terminal/progress_bar.h"

namespace onepiece::cli {
namespace {

struct UpArguments {
  local::UpOptions cluster;
  bool foreground = false;
};

struct SuperviseArguments {
  local::UpOptions cluster;
  int lock_fd = -1;
  int report_fd = -1;
};

/// The options of `up`. The supervisor that it starts reads them again: local::Up() hands them on.
void AddClusterOptions(CLI::App& verb, local::UpOptions& cluster) {
  verb.add_option("--config", cluster.config_file,
                  "Cluster configuration (YAML, onepiece.v1.LocalClusterConfig)");
  verb.add_option("--fabric", cluster.fabric,
                  "What carries the data: shm (default), ucx, or a fabric URI");
  verb.add_option("--nodemanagers", cluster.nodemanagers,
                  "Replicas of the NodeManager: 1 (default), 3 or 5")
      ->check(CLI::IsMember({1, 3, 5}));
  verb.add_option("--sets", cluster.workflow_sets,
                  "Workflow sets, each with its own proxies, databases and instances (default 1)")
      ->check(CLI::Range(1, 16));
  verb.add_flag("--read-only", cluster.read_only,
                "To be looked at only: jobs and changes are refused");
  verb.add_flag("--insecure", cluster.insecure,
                "No TLS, and every process of this host may do everything: for measuring");
}

constexpr char kInsecureNote[] =
    "insecure: no TLS, and every process of this host may do everything";

/// The files by which clients without the CLI meet the cluster; null when it is insecure.
Json TlsDocument(const std::string& folder) {
  if (folder.empty()) return nullptr;
  const identity::IdentityFiles files = identity::FilesOf(folder, identity::kAdminName);
  return {{"ca", files.authorities}, {"certificate", files.certificate}, {"key", files.key}};
}

Json UpDocument(const Context& context, const local::ClusterState& state) {
  return {{"cluster_id", state.cluster_id},
          {"data_dir", context.data_dir},
          {"fabric", state.fabric},
          {"tls", TlsDocument(state.identity)},
          {"nodemanagers", state.nodemanagers},
          {"supervisor", {{"pid", state.supervisor.pid}}},
          {"processes", state.processes.size()}};
}

std::string UpText(const Context& context, const local::ClusterState& state) {
  return absl::StrFormat(
      "The cluster is ready: %d processes, data in %s\n\n"
      "  onepiece submit --app tiny-wan-t2v --prompt \"a red circle moving right\" --wait -o "
      "out.mp4\n"
      "  onepiece status          what runs, and how it is\n"
      "  onepiece jobs            the jobs and where they are\n"
      "  onepiece down            end it\n",
      state.processes.size(), context.data_dir);
}

int RunUp(const Context& context, const UpArguments& arguments) {
  terminal::ProgressBar bar(context);
  local::UpOptions options = arguments.cluster;
  options.data_dir = context.data_dir;
  options.on_progress = [&bar](const local::Progress& progress) {
    bar.Show(progress.total == 0 ? 0 : static_cast<double>(progress.ready) / progress.total,
             progress.what);
  };
  const auto announce = [&](const local::ClusterState& state) {
    bar.Erase();
    context.Print(UpDocument(context, state), UpText(context, state));
  };
  absl::Status status;
  if (arguments.foreground) {
    base::InitLogging("supervisor");
    status = local::UpInForeground(options, announce);
  } else {
    const auto state = local::Up(options);
    if (state.ok()) announce(*state);
    status = state.status();
  }
  bar.Erase();
  return status.ok() ? terminal::kOk : context.Fail(status);
}

int RunSupervise(const Context& context, const SuperviseArguments& arguments) {
  base::InitLogging("supervisor");
  local::UpOptions options = arguments.cluster;
  options.data_dir = context.data_dir;
  const absl::Status status = local::Supervise(options, arguments.lock_fd, arguments.report_fd);
  return status.ok() ? terminal::kOk : context.Fail(status);
}

int RunDown(const Context& context) {
  const auto result = local::Down(context.data_dir);
  if (!result.ok()) return context.Fail(result.status());
  const bool stopped = *result == local::DownResult::kStopped;
  context.Print(
      {{"data_dir", context.data_dir}, {"stopped", stopped}},
      stopped ? "The cluster has ended." : "No cluster runs in " + context.data_dir + ".");
  return terminal::kOk;
}

/// One row of the table of `status`.
struct Row {
  std::string node_id, role, address, metrics_address, state, stage, detail, workflow_set;
  v1::Activity activity = v1::ACTIVITY_UNSPECIFIED;  ///< Instances.
  std::optional<v1::Placement> placement;            ///< Instances that plans have placed.
  std::string replica_role;                          ///< NodeManagers: "leader", "follower" …
  std::vector<std::string> app_ids;                  ///< The applications that it serves.
  std::int32_t pid = 0;
  int restarts = 0;
  v1::NodeLoad load;
};

Json RowDocument(const Row& row) {
  return {{"node_id", row.node_id},
          {"pid", row.pid},
          {"role", row.role},
          {"address", row.address},
          {"metrics_address", row.metrics_address},
          {"state", row.state},
          {"workflow_set", row.workflow_set},
          {"activity", ActivityName(row.activity)},
          {"placement", row.placement ? PlacementDocument(*row.placement) : Json(nullptr)},
          {"stage", row.stage},
          {"replica_role", row.replica_role},
          {"app_ids", row.app_ids},
          {"detail", row.detail},
          {"restarts", row.restarts},
          {"utilization", row.load.utilization()},
          {"queued_jobs", row.load.queued_jobs()},
          {"running_jobs", row.load.running_jobs()},
          {"memory_bytes", row.load.memory_bytes()},
          {"clock_skew_ms",
           row.load.has_clock_skew_ms() ? Json(row.load.clock_skew_ms()) : Json(nullptr)}};
}

std::string RowText(const Row& row) {
  std::string text = absl::StrFormat(
      "%-24s %-12s %8d  %-10s %-11s %-14s %-22s %s\n", row.node_id, row.role, row.pid, row.state,
      ActivityName(row.activity), row.stage + row.replica_role, row.address, row.metrics_address);
  if (row.placement) text += "    placed: " + PlaceName(*row.placement) + "\n";
  if (row.activity == v1::DRAINED && row.placement && row.placement->removed())
    text += "    holds no work: safe to remove\n";
  if (!row.app_ids.empty()) text += "    serves " + absl::StrJoin(row.app_ids, ", ") + "\n";
  if (!row.detail.empty()) text += "    " + row.detail + "\n";
  return text;
}

Row RowFrom(const v1::Node& node) {
  Row row;
  row.node_id = node.node_id();
  row.role = RoleName(node.role());
  row.address = node.address();
  row.metrics_address = node.metrics_address();
  row.state = v1::Node::State_Name(node.state());
  row.stage = node.assignment().stage().stage();
  row.app_ids = {node.assignment().app_ids().begin(), node.assignment().app_ids().end()};
  row.detail = node.detail();
  row.workflow_set = node.workflow_set();
  row.activity = node.activity();
  if (node.has_placement()) row.placement = node.placement();
  row.pid = node.pid();
  row.load = node.load();
  return row;
}

/// Makes a row from what the supervisor knows of a process. `node` is what the NodeManager says
/// about it, or null.
Row RowFrom(const local::ProcessRecord& record, const v1::Node* node, bool manager_answers) {
  Row row;
  const bool same = node != nullptr && node->pid() == record.process.pid;
  if (same) row = RowFrom(*node);
  row.node_id = record.node_id;
  row.role = record.role;
  row.pid = record.process.pid;
  row.restarts = record.restarts;
  if (!record.address.empty()) row.address = record.address;
  if (!record.metrics_address.empty()) row.metrics_address = record.metrics_address;
  if (!local::IsRunning(record.process)) {
    row.state = "RESTARTING";
  } else if (!same) {
    const bool is_manager = record.role == "nodemanager";
    row.state = !record.address.empty() && (is_manager ? manager_answers : !manager_answers)
                    ? "READY"
                    : "STARTING";
    if (!is_manager && !manager_answers) row.state = "UNKNOWN";
  }
  return row;
}

std::vector<Row> MakeRows(const std::vector<local::ProcessRecord>& records,
                          const absl::StatusOr<v1::Cluster>& cluster) {
  std::map<std::string, const v1::Node*> nodes;
  if (cluster.ok()) {
    for (const auto& node : cluster->nodes()) nodes[node.node_id()] = &node;
  }
  std::vector<Row> rows;
  for (const auto& record : records) {
    const auto at = nodes.find(record.node_id);
    rows.push_back(RowFrom(record, at == nodes.end() ? nullptr : at->second, cluster.ok()));
    nodes.erase(record.node_id);
  }
  for (const auto& [id, node] : nodes) rows.push_back(RowFrom(*node));
  return rows;
}

/// Adds what the NodeManager's replicas report about themselves.
void AddReplicas(client::Client& client, std::vector<Row>& rows) {
  for (const client::ReplicaAnswer& replica : client.AskReplicas()) {
    // An older program does not know this call.
    if (replica.name.empty() || absl::IsUnimplemented(replica.status.status())) continue;
    auto row = std::ranges::find(rows, replica.name, &Row::node_id);
    if (row == rows.end()) {
      row = rows.emplace(rows.begin());
      row->node_id = replica.name;
      row->role = RoleName(v1::NODE_MANAGER);
      row->address = replica.address;
      row->state = "UNKNOWN";
    }
    if (replica.status.ok()) {
      row->state = "READY";
      row->replica_role = client::ReplicaRoleName(*replica.status);
    } else if (row->state == "READY") {
      row->state = "UNKNOWN";
      row->detail = base::Message(replica.status.status());
    }
  }
}

/// Adds what is true of the cluster as a whole.
void AddNotes(const v1::Cluster& cluster, Json& document) {
  document["epoch"] = cluster.epoch();
  document["feature_level"] = cluster.feature_level();
  document["available_feature_level"] = cluster.available_feature_level();
  document["unserved_stages"] = Json::array();
  for (const client::UnservedStage& unserved : client::UnservedStages(cluster)) {
    document["unserved_stages"].push_back({{"workflow_set", unserved.workflow_set},
                                           {"app_id", unserved.app_id},
                                           {"stage", unserved.stage}});
  }
  document["versions"] = Json::object();
  for (const auto& [version, nodes] : client::NodesByVersion(cluster))
    document["versions"][version] = nodes;
  for (const std::string& note : client::NotesOn(cluster)) document["notes"].push_back(note);
}

int RunStatus(const Context& context) {
  absl::StatusOr<local::ClusterState> found = context.FindCluster();
  if (!found.ok()) return context.Fail(found.status());
  local::ClusterState state = *std::move(found);
  client::ClientOptions options;
  options.nodemanagers = state.nodemanagers;
  options.timeout = base::Scaled(std::chrono::seconds(5));
  options.attempt_timeout = base::Scaled(std::chrono::seconds(2));
  client::Client client(options);
  const auto cluster = client.GetCluster();
  if (!cluster.ok() && state.processes.empty()) return context.Fail(cluster.status());
  if (cluster.ok()) state.cluster_id = cluster->cluster_id();

  Json document = {{"cluster_id", state.cluster_id},
                   {"nodemanagers", state.nodemanagers},
                   {"notes", Json::array()}};
  if (state.supervisor.pid != 0) {
    document["data_dir"] = context.data_dir;
    document["supervisor"] = {{"pid", state.supervisor.pid}};
    document["fabric"] = state.fabric;
    document["tls"] = TlsDocument(state.identity);
  }
  const bool insecure = state.supervisor.pid != 0 && state.identity.empty();
  if (cluster.ok()) {
    AddNotes(*cluster, document);
    document["generation"] = base::GenerationOf(cluster->epoch());
  }
  document["processes"] = Json::array();
  std::string text =
      absl::StrFormat("%-24s %-12s %8s  %-10s %-11s %-14s %-22s %s\n", "NODE", "ROLE", "PID",
                      "STATE", "ACTIVITY", "STAGE", "ADDRESS", "METRICS");
  std::vector<Row> rows = MakeRows(state.processes, cluster);
  AddReplicas(client, rows);
  for (const Row& row : rows) {
    document["processes"].push_back(RowDocument(row));
    text += RowText(row);
  }
  if (!state.fabric.empty()) text += "fabric " + state.fabric + "\n";
  if (insecure) {
    document["notes"].push_back(kInsecureNote);
    text += std::string("! ") + kInsecureNote + "\n";
  }
  if (cluster.ok()) {
    for (const std::string& note : client::NotesOn(*cluster)) text += "! " + note + "\n";
  }
  context.Print(document, text);
  if (cluster.ok()) return terminal::kOk;
  context.Say("onepiece: " + base::Message(cluster.status()));
  return terminal::kUnavailable;
}

}  // namespace

void DefineUp(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<UpArguments>();
  AddClusterOptions(verb, arguments->cluster);
  verb.add_flag("--foreground", arguments->foreground, "Stay, and end the cluster on Ctrl-C");
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunUp(context, *arguments); };
  });
}

void DefineSupervise(CLI::App& verb, Context& context) {
  const auto arguments = std::make_shared<SuperviseArguments>();
  AddClusterOptions(verb, arguments->cluster);
  verb.add_option("--lock-fd", arguments->lock_fd)->required();
  verb.add_option("--report-fd", arguments->report_fd)->required();
  verb.callback([&context, arguments] {
    context.action = [&context, arguments] { return RunSupervise(context, *arguments); };
  });
}

void DefineDown(CLI::App& verb, Context& context) {
  verb.callback([&context] { context.action = [&context] { return RunDown(context); }; });
}

void DefineStatus(CLI::App& verb, Context& context) {
  verb.callback([&context] { context.action = [&context] { return RunStatus(context); }; });
}

}  // namespace onepiece::cli
