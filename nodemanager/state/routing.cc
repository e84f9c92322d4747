// The state machine's routing tables and their epochs.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {
namespace {

v1::Endpoint EndpointOf(const v1::Node& node) {
  v1::Endpoint endpoint;
  endpoint.set_node_id(node.node_id());
  endpoint.set_incarnation(node.incarnation());
  endpoint.set_address(node.address());
  return endpoint;
}

// Nodes of an earlier level order databases by their names alone, and all must do it alike.
v1::Endpoint DatabaseOf(const v1::Node& node, std::uint32_t version) {
  v1::Endpoint endpoint = EndpointOf(node);
  if (version >= 4) {
    endpoint.set_host(node.host());
    endpoint.set_zone(node.zone());
  }
  return endpoint;
}

bool HasStage(const v1::Workflow& workflow, const std::string& stage) {
  return std::any_of(workflow.stages().begin(), workflow.stages().end(),
                     [&](const v1::StageSpec& spec) { return spec.stage() == stage; });
}

}  // namespace

// `alive` lists nodes that are not READY too: an incarnation that is not in it counts as dead.
v1::RoutingTable StateMachine::Routing(const std::string& workflow_set) const {
  v1::RoutingTable table;
  table.set_epoch(EpochOf(workflow_set));
  table.set_workflow_set(workflow_set);
  std::map<std::pair<std::string, std::string>, std::vector<const v1::Node*>> serving;
  for (const auto& [id, record] : nodes_) {
    const v1::Node& node = record.node();
    if (node.workflow_set() != workflow_set || !IsAlive(node)) continue;
    *table.add_alive() = EndpointOf(node);
    if (node.state() != v1::Node::READY) continue;
    if (node.role() == v1::PROXY) *table.add_proxies() = EndpointOf(node);
    if (node.role() == v1::DATABASE) *table.add_databases() = DatabaseOf(node, version_);
    for (const std::string& app_id : ServedApps(record)) {
      serving[{app_id, node.assignment().stage().stage()}].push_back(&node);
    }
  }
  for (const auto& [app_id, record] : workflows_) {
    *table.add_workflows() = record.workflow();
    for (const v1::StageSpec& stage : record.workflow().stages()) {
      v1::Route& route = *table.add_routes();
      route.set_app_id(app_id);
      route.set_stage(stage.stage());
      const auto instances = serving.find({app_id, stage.stage()});
      if (instances == serving.end()) continue;
      for (const v1::Node* node : instances->second) *route.add_instances() = EndpointOf(*node);
    }
  }
  return table;
}

// It must tell apart what Routing() tells apart, and no more: the epoch is a part of the state, and
// programs of earlier versions compare whole tables.
std::string StateMachine::RoutingPart(const v1::NodeRecord& record) const {
  const v1::Node& node = record.node();
  if (node.node_id().empty() || !IsAlive(node)) return "";
  const bool ready = node.state() == v1::Node::READY;
  std::string part = absl::StrCat(node.incarnation(), " ", node.address(), " ",
                                  ready && node.role() == v1::PROXY ? "proxy" : "", " ",
                                  ready && node.role() == v1::DATABASE ? "database" : "");
  if (ready && node.role() == v1::DATABASE && version_ >= 4)
    absl::StrAppend(&part, " ", node.host(), " ", node.zone());
  const std::string& stage = node.assignment().stage().stage();
  // Sorted, because the order in which a node names its applications does not show in the routes.
  std::set<std::string> routes;
  for (const std::string& app_id : ServedApps(record)) {
    const auto workflow = workflows_.find(app_id);
    if (workflow != workflows_.end() && HasStage(workflow->second.workflow(), stage))
      routes.insert(app_id);
  }
  if (!routes.empty()) absl::StrAppend(&part, " ", stage);
  for (const std::string& app_id : routes) absl::StrAppend(&part, " ", app_id);
  return part;
}

std::uint64_t StateMachine::EpochOf(const std::string& workflow_set) const {
  const auto known = set_epochs_.find(workflow_set);
  return known == set_epochs_.end() ? epoch_ : known->second;
}

// Assign() and EnterPhase() count epoch_ themselves.
void StateMachine::CountEpochs(std::uint64_t epoch_before) {
  const bool changed = changed_sets_.all || !changed_sets_.names.empty();
  if (changed && epoch_ == epoch_before) ++epoch_;
  if (version_ < 3 || !changed) return;
  if (changed_sets_.all) {
    for (auto& [workflow_set, epoch] : set_epochs_) epoch = epoch_;
  }
  for (const std::string& workflow_set : changed_sets_.names) set_epochs_[workflow_set] = epoch_;
  if (set_epochs_.size() <= kMaxNodes) return;
  // A set without nodes is forgotten. Its epoch is epoch_ then, which is not less.
  std::set<std::string> sets;
  for (const auto& [id, record] : nodes_) sets.insert(record.node().workflow_set());
  std::erase_if(set_epochs_, [&](const auto& known) { return !sets.contains(known.first); });
}

}  // namespace onepiece::nodemanager
