// The verbs node list, show and remove.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/cli/node_output.h"
#include "cluster/cli/plan_output.h"
#include "cluster/cli/plan_verbs.h"
#include "cluster/cli/verbs.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

struct NodeArguments : PlanArguments {
  std::string node_id;
};

std::optional<std::int64_t> ReportUnixMs(const v1::Node& node) {
  if (!node.has_last_report_time()) return std::nullopt;
  return google::protobuf::util::TimeUtil::TimestampToMilliseconds(node.last_report_time());
}

// The NodeManagers report too, so the newest report was a moment ago. Its time is the leader's, as
// that of every other report: so this machine's clock does not matter.
std::int64_t NewestReport(const v1::Cluster& cluster) {
  std::int64_t newest = 0;
  for (const v1::Node& node : cluster.nodes())
    newest = std::max(newest, ReportUnixMs(node).value_or(0));
  return newest;
}

Json LabelsDocument(const v1::Node& node) {
  Json labels = Json::object();
  for (const auto& [key, value] : node.labels()) labels[key] = value;
  return labels;
}

Json DevicesDocument(const v1::Node& node) {
  Json devices = Json::array();
  for (const v1::Device& device : node.devices()) {
    devices.push_back({{"kind", device.kind()},
                       {"device", device.device()},
                       {"product", device.product()},
                       {"memory_bytes", device.memory_bytes()}});
  }
  return devices;
}

Json NodeDocument(const v1::Node& node, std::int64_t newest) {
  const auto report = ReportUnixMs(node);
  return {{"node_id", node.node_id()},
          {"role", RoleName(node.role())},
          {"workflow_set", node.workflow_set()},
          {"state", v1::Node::State_Name(node.state())},
          {"activity", ActivityName(node.activity())},
          {"detail", node.detail()},
          {"incarnation", node.incarnation()},
          {"address", node.address()},
          {"metrics_address", node.metrics_address()},
          {"pid", node.pid()},
          {"version", node.version()},
          {"build", node.build()},
          {"zone", node.zone()},
          {"host", node.host()},
          {"labels", LabelsDocument(node)},
          {"devices", DevicesDocument(node)},
          {"pinned_stage", node.pinned_stage()},
          {"stage", node.assignment().stage().stage()},
          {"placement", node.has_placement() ? PlacementDocument(node.placement()) : Json(nullptr)},
          {"report_age_ms", report ? Json(newest - *report) : Json(nullptr)}};
}

std::string ReportAge(const v1::Node& node, std::int64_t newest) {
  const auto report = ReportUnixMs(node);
  return report ? HumanSeconds(static_cast<double>(newest - *report) / 1000) : "";
}

std::vector<std::string> NodeRow(const v1::Node& node, std::int64_t newest) {
  const std::string activity = ActivityName(node.activity());
  return {node.node_id(),      RoleName(node.role()),
          node.workflow_set(), activity.empty() ? v1::Node::State_Name(node.state()) : activity,
          node.version(),      node.zone(),
          node.host(),         ReportAge(node, newest)};
}

std::string DeviceText(const v1::Device& device) {
  std::string text = device.device();
  if (!device.product().empty()) absl::StrAppend(&text, ", ", device.product());
  if (device.memory_bytes() > 0)
    absl::StrAppend(&text, ", ", terminal::HumanBytes(device.memory_bytes()));
  return text;
}

std::string NodeText(const v1::Node& node, std::int64_t newest) {
  std::vector<std::pair<std::string, std::string>> lines = {
      {"node", node.node_id()},
      {"role", RoleName(node.role())},
      {"workflow set", node.workflow_set()},
      {"state", v1::Node::State_Name(node.state())},
      {"activity", ActivityName(node.activity())},
      {"detail", node.detail()},
      {"last report", ReportAge(node, newest)},
      {"address", node.address()},
      {"metrics", node.metrics_address()},
      {"pid", absl::StrCat(node.pid())},
      {"incarnation", absl::StrCat(node.incarnation())},
      {"version", node.version()},
      {"build", node.build()},
      {"zone", node.zone()},
      {"host", node.host()},
      {"pinned to", node.pinned_stage()},
      {"stage", node.assignment().stage().stage()},
      {"placed", node.has_placement() ? PlaceName(node.placement()) : ""}};
  for (const v1::Device& device : node.devices()) lines.emplace_back("device", DeviceText(device));
  const Json labels = LabelsDocument(node);  // In the order of their keys.
  for (const auto& [key, value] : labels.items())
    lines.emplace_back("label", key + "=" + value.get<std::string>());
  std::string text;
  for (const auto& [what, value] : lines) {
    if (!value.empty()) absl::StrAppend(&text, absl::StrFormat("%-13s %s\n", what, value));
  }
  return text;
}

int RunList(const Context& context, client::Client& client) {
  const auto cluster = client.GetCluster();
  if (!cluster.ok()) return context.Fail(cluster.status());
  const std::int64_t newest = NewestReport(*cluster);
  Json document = {{"nodes", Json::array()}};
  std::vector<std::vector<std::string>> rows = {
      {"NODE", "ROLE", "SET", "STATE", "VERSION", "ZONE", "HOST", "REPORT"}};
  for (const v1::Node& node : cluster->nodes()) {
    document["nodes"].push_back(NodeDocument(node, newest));
    rows.push_back(NodeRow(node, newest));
  }
  context.Print(document, Table(rows));
  return terminal::kOk;
}

int RunShow(const Context& context, client::Client& client, const NodeArguments& arguments) {
  const auto cluster = client.GetCluster();
  if (!cluster.ok()) return context.Fail(cluster.status());
  const auto node = std::ranges::find(cluster->nodes(), arguments.node_id, &v1::Node::node_id);
  if (node == cluster->nodes().end()) {
    return context.Fail(
        base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN",
                        "there is no node '" + arguments.node_id + "' (see `onepiece node list`)"));
  }
  const std::int64_t newest = NewestReport(*cluster);
  context.Print(NodeDocument(*node, newest), NodeText(*node, newest));
  return terminal::kOk;
}

int RunRemove(const Context& context, client::Client& client, const NodeArguments& arguments) {
  v1::RemoveNodeRequest request;
  request.set_node_id(arguments.node_id);
  request.set_actor(arguments.actor);
  request.set_reason(arguments.reason);
  const absl::Status status = client.RemoveNode(request);
  if (!status.ok()) return context.Fail(status);
  context.Print({{"node_id", arguments.node_id}, {"removed", true}},
                "'" + arguments.node_id + "' is forgotten.");
  return terminal::kOk;
}

}  // namespace

void DefineNode(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  const auto arguments = std::make_shared<NodeArguments>();
  AddManagerVerb(verb, context, "list", "Every node: how it is, its version, and where it runs",
                 [&context](auto& client) { return RunList(context, client); });
  CLI::App* show = AddManagerVerb(
      verb, context, "show", "All that is known of a node",
      [&context, arguments](auto& client) { return RunShow(context, client, *arguments); });
  show->add_option("node", arguments->node_id, "Node id")->required();
  CLI::App* remove = AddManagerVerb(
      verb, context, "remove", "Forget a dead node",
      [&context, arguments](auto& client) { return RunRemove(context, client, *arguments); });
  remove->add_option("node", arguments->node_id, "Node id")->required();
  AddActorOptions(*remove, *arguments);
}

}  // namespace onepiece::cli
