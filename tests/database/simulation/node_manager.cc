#include "tests/database/simulation/node_manager.h"

#include <utility>

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDeadAfter = 3s;
constexpr Duration kLook = 250ms;

void AddStage(const std::string& stage, const std::vector<std::string>& after,
              v1::Workflow& workflow) {
  v1::StageSpec& spec = *workflow.add_stages();
  spec.set_stage(stage);
  for (const std::string& before : after) spec.add_after(before);
}

void AddWorkflows(v1::RoutingTable& table) {
  v1::Workflow& chain = *table.add_workflows();
  chain.set_app_id(kChain);
  AddStage("encode", {}, chain);
  AddStage("paint", {}, chain);
  v1::Workflow& graph = *table.add_workflows();
  graph.set_app_id(kGraph);
  AddStage("encode", {}, graph);
  AddStage("sound", {}, graph);
  AddStage("paint", {"encode"}, graph);
  AddStage("merge", {"paint", "sound"}, graph);
  for (v1::Workflow& workflow : *table.mutable_workflows()) workflow.set_retries(kRetries);
}

}  // namespace

const std::vector<std::string>& Stages() {
  static const std::vector<std::string> stages = {"encode", "paint", "sound", "merge"};
  return stages;
}

std::string ResultOf(const std::string& app, const std::string& input) {
  const std::string painted = "paint(encode(" + input + "))";
  return app == kChain ? painted : "merge(" + painted + "sound(" + input + "))";
}

void NodeManager::Start() {
  world_.Start(kNodeManager);
  world_.Later(kNodeManager, kLook, [this] { Look(); });
}

bool NodeManager::Report(const std::string& node, std::uint64_t incarnation,
                         const std::string& address, const std::string& stage) {
  Known& known = nodes_[node];
  if (incarnation < known.incarnation) return false;
  const bool was_dead = known.incarnation > 0 && !known.alive;
  if (incarnation == known.incarnation && was_dead) return false;
  known.heard = world_.Now();
  if (incarnation > known.incarnation) {
    if (known.incarnation > 0) ledger_.Died(node, known.incarnation);
    ledger_.Registered(node, incarnation);
    known = {.incarnation = incarnation,
             .address = address,
             .stage = stage,
             .heard = world_.Now(),
             .alive = true};
    world_.Tell(node + " is registered as " + std::to_string(incarnation));
    Publish();
  }
  return true;
}

void NodeManager::Look() {
  bool changed = false;
  for (auto& [node, known] : nodes_) {
    if (!known.alive || world_.Now() - known.heard < kDeadAfter) continue;
    known.alive = false;
    changed = true;
    ledger_.Died(node, known.incarnation);
    world_.Tell(node + " is declared dead");
  }
  if (changed) Publish();
  world_.Later(kNodeManager, kLook, [this] { Look(); });
}

void NodeManager::Publish() {
  v1::RoutingTable table;
  table.set_epoch(table_->epoch() + 1);
  table.set_workflow_set("set");
  AddWorkflows(table);
  std::map<std::pair<std::string, std::string>, v1::Route*> routes;
  for (const v1::Workflow& workflow : table.workflows()) {
    for (const v1::StageSpec& stage : workflow.stages()) {
      v1::Route& route = *table.add_routes();
      route.set_app_id(workflow.app_id());
      route.set_stage(stage.stage());
    }
  }
  for (const auto& [node, known] : nodes_) {
    if (!known.alive) continue;
    v1::Endpoint& endpoint = *table.add_alive();
    endpoint.set_node_id(node);
    endpoint.set_incarnation(known.incarnation);
    endpoint.set_address(known.address);
    if (node.starts_with("db")) *table.add_databases() = endpoint;
    if (node.starts_with("proxy")) *table.add_proxies() = endpoint;
    for (v1::Route& route : *table.mutable_routes()) {
      if (route.stage() == known.stage) *route.add_instances() = endpoint;
    }
  }
  table_ = std::make_shared<const node::Routing>(std::move(table));
  for (const auto& [node, take] : takers_) Give(node);
}

void NodeManager::Give(const std::string& node) {
  const auto delay = delays_.find(node);
  world_.After(delay == delays_.end() ? Duration::zero() : delay->second,
               [this, node, table = table_] {
                 world_.Send(kNodeManager, node, [this, node, table] { takers_.at(node)(table); });
               });
}

}  // namespace onepiece::simulation
