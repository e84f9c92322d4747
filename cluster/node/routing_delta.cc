#include "cluster/node/routing_delta.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/status.h"

namespace onepiece::node {
namespace {

using Endpoints = google::protobuf::RepeatedPtrField<v1::Endpoint>;
using Names = google::protobuf::RepeatedPtrField<std::string>;
using RouteKey = std::pair<std::string, std::string>;  // App id and stage.

bool SameEndpoint(const v1::Endpoint& a, const v1::Endpoint& b) {
  return a.incarnation() == b.incarnation() && a.address() == b.address() && a.host() == b.host() &&
         a.zone() == b.zone();
}

// Both lists are sorted by node id.
void AddDifference(const Endpoints& from, const Endpoints& to, Endpoints& added, Names& removed) {
  auto old = from.begin();
  for (const v1::Endpoint& endpoint : to) {
    for (; old != from.end() && old->node_id() < endpoint.node_id(); ++old)
      *removed.Add() = old->node_id();
    const bool known = old != from.end() && old->node_id() == endpoint.node_id();
    if (!known || !SameEndpoint(*old, endpoint)) *added.Add() = endpoint;
    if (known) ++old;
  }
  for (; old != from.end(); ++old) *removed.Add() = old->node_id();
}

// Takes `removed` out of `list` and puts `added` in. `list` and `added` are sorted by node id.
void Change(const Endpoints& added, const Names& removed, Endpoints& list) {
  if (added.empty() && removed.empty()) return;
  const std::set<std::string> gone(removed.begin(), removed.end());
  Endpoints changed;
  changed.Reserve(list.size() + added.size());
  auto next = added.begin();
  for (v1::Endpoint& old : list) {
    for (; next != added.end() && next->node_id() < old.node_id(); ++next) *changed.Add() = *next;
    const bool replaced = next != added.end() && next->node_id() == old.node_id();
    if (!replaced && !gone.contains(old.node_id())) *changed.Add() = std::move(old);
  }
  for (; next != added.end(); ++next) *changed.Add() = *next;
  list.Swap(&changed);
}

RouteKey KeyOf(const v1::Route& route) { return {route.app_id(), route.stage()}; }

void AddRoutes(const v1::RoutingTable& from, const v1::RoutingTable& to, v1::RoutingTable& delta) {
  static const v1::Route none;
  std::map<RouteKey, const v1::Route*> known;
  for (const v1::Route& route : from.routes()) known[KeyOf(route)] = &route;
  for (const v1::Route& route : to.routes()) {
    const auto old = known.find(KeyOf(route));
    v1::Route change;
    AddDifference(old == known.end() ? none.instances() : old->second->instances(),
                  route.instances(), *change.mutable_instances(),
                  *change.mutable_removed_instances());
    if (old != known.end() && change.instances().empty() && change.removed_instances().empty())
      continue;
    change.set_app_id(route.app_id());
    change.set_stage(route.stage());
    *delta.add_routes() = std::move(change);
  }
}

void ChangeWorkflows(const v1::RoutingTable& delta, v1::RoutingTable& table) {
  std::map<std::string, v1::Workflow*> workflows;
  for (v1::Workflow& workflow : *table.mutable_workflows())
    workflows[workflow.app_id()] = &workflow;
  for (const std::string& app_id : delta.removed_workflows()) workflows.erase(app_id);
  v1::RoutingTable changed;
  std::map<std::string, const v1::Workflow*> added;
  for (const v1::Workflow& workflow : delta.workflows()) {
    added[workflow.app_id()] = &workflow;
    workflows.emplace(workflow.app_id(), nullptr);
  }
  for (auto& [app_id, workflow] : workflows) {
    const auto fresh = added.find(app_id);
    *changed.add_workflows() = fresh != added.end() ? *fresh->second : std::move(*workflow);
  }
  table.mutable_workflows()->Swap(changed.mutable_workflows());
}

// The routes of a table stand in the order of its workflows and their stages.
void ChangeRoutes(const v1::RoutingTable& delta, v1::RoutingTable& table) {
  std::map<RouteKey, v1::Route> known;
  for (v1::Route& route : *table.mutable_routes()) {
    const RouteKey key = KeyOf(route);
    known[key] = std::move(route);
  }
  for (const v1::Route& change : delta.routes()) {
    Change(change.instances(), change.removed_instances(),
           *known[KeyOf(change)].mutable_instances());
  }
  table.clear_routes();
  for (const v1::Workflow& workflow : table.workflows()) {
    for (const v1::StageSpec& stage : workflow.stages()) {
      v1::Route& route = *table.add_routes();
      if (const auto old = known.find({workflow.app_id(), stage.stage()}); old != known.end())
        route.mutable_instances()->Swap(old->second.mutable_instances());
      route.set_app_id(workflow.app_id());
      route.set_stage(stage.stage());
    }
  }
}

}  // namespace

v1::RoutingTable MakeRoutingDelta(const v1::RoutingTable& from, const v1::RoutingTable& to) {
  v1::RoutingTable delta;
  delta.set_epoch(to.epoch());
  delta.set_base_epoch(from.epoch());
  delta.set_workflow_set(to.workflow_set());
  std::map<std::string, const v1::Workflow*> workflows;
  for (const v1::Workflow& workflow : from.workflows()) workflows[workflow.app_id()] = &workflow;
  for (const v1::Workflow& workflow : to.workflows()) {
    const auto old = workflows.find(workflow.app_id());
    if (old == workflows.end() ||
        base::CanonicalBytes(*old->second) != base::CanonicalBytes(workflow))
      *delta.add_workflows() = workflow;
    if (old != workflows.end()) workflows.erase(old);
  }
  for (const auto& [app_id, workflow] : workflows) delta.add_removed_workflows(app_id);
  AddRoutes(from, to, delta);
  AddDifference(from.proxies(), to.proxies(), *delta.mutable_proxies(),
                *delta.mutable_removed_proxies());
  AddDifference(from.databases(), to.databases(), *delta.mutable_databases(),
                *delta.mutable_removed_databases());
  AddDifference(from.alive(), to.alive(), *delta.mutable_alive(), *delta.mutable_removed_alive());
  return delta;
}

absl::Status ApplyRoutingDelta(const v1::RoutingTable& delta, v1::RoutingTable& table) {
  if (delta.base_epoch() != table.epoch() || delta.workflow_set() != table.workflow_set()) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "OTHER_BASE",
        absl::StrCat("changes of set '", delta.workflow_set(), "' since epoch ", delta.base_epoch(),
                     ", the table is set '", table.workflow_set(), "' epoch ", table.epoch()));
  }
  table.set_epoch(delta.epoch());
  const bool workflows = !delta.workflows().empty() || !delta.removed_workflows().empty();
  if (workflows) ChangeWorkflows(delta, table);
  if (workflows || !delta.routes().empty()) ChangeRoutes(delta, table);
  Change(delta.proxies(), delta.removed_proxies(), *table.mutable_proxies());
  Change(delta.databases(), delta.removed_databases(), *table.mutable_databases());
  Change(delta.alive(), delta.removed_alive(), *table.mutable_alive());
  return absl::OkStatus();
}

}  // namespace onepiece::node
