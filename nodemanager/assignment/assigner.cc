#include "nodemanager/assignment/assigner.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cluster/workflow/pool.h"

namespace onepiece::nodemanager {
namespace {

// Stages of several workflows that one instance can serve.
struct Group {
  v1::StageSpec spec;                // Of the first workflow that names it.
  std::vector<std::string> app_ids;  // In order.
  std::vector<std::string> models;   // Of each application.
  int min_instances = 1;
  int count = 0;
};

struct Instance {
  const v1::Node* node;
  Group* group = nullptr;
};

// In workflow order. The vector is complete when it is returned: pointers into it stay good.
std::vector<Group> MakeGroups(const StateMachine& state) {
  std::vector<Group> groups;
  std::map<workflow::PoolKey, std::size_t> places;
  for (const auto& [app_id, record] : state.workflows()) {
    for (const v1::StageSpec& spec : record.workflow().stages()) {
      const auto [place, is_new] = places.try_emplace(workflow::PoolOf(spec), groups.size());
      if (is_new) {
        groups.push_back({.spec = spec});
        groups.back().spec.clear_after();  // A matter of the workflow, not of who serves it.
      }
      Group& group = groups[place->second];
      group.app_ids.push_back(app_id);
      group.models.push_back(spec.model());
      group.min_instances = std::max(group.min_instances, spec.min_instances());
    }
  }
  return groups;
}

bool MayServe(const v1::Node& node, const Group& group) {
  return node.pinned_stage().empty() || node.pinned_stage() == group.spec.stage();
}

// count / min_instances of a below that of b, without rounding.
bool NeedsMore(const Group& a, const Group& b) {
  return static_cast<std::int64_t>(a.count) * b.min_instances <
         static_cast<std::int64_t>(b.count) * a.min_instances;
}

void KeepWhatHolds(std::vector<Instance>& instances, std::vector<Group>& groups) {
  for (Instance& instance : instances) {
    if (!instance.node->assignment().has_stage()) continue;
    const workflow::PoolKey key = workflow::PoolOf(instance.node->assignment().stage());
    for (Group& group : groups) {
      if (workflow::PoolOf(group.spec) != key || !MayServe(*instance.node, group)) continue;
      instance.group = &group;
      ++group.count;
    }
  }
}

void PlaceFree(std::vector<Instance>& instances, std::vector<Group>& groups, bool pinned) {
  for (Instance& instance : instances) {
    if (instance.group != nullptr || instance.node->pinned_stage().empty() == pinned) continue;
    for (Group& group : groups) {
      if (!MayServe(*instance.node, group)) continue;
      if (instance.group == nullptr || NeedsMore(group, *instance.group)) instance.group = &group;
    }
    if (instance.group != nullptr) ++instance.group->count;
  }
}

void FillEmptyStages(std::vector<Instance>& instances, std::vector<Group>& groups) {
  for (Group& empty : groups) {
    if (empty.count > 0) continue;
    Instance* donor = nullptr;
    for (Instance& instance : instances) {
      if (instance.group == nullptr || instance.group->count < 2 ||
          !MayServe(*instance.node, empty))
        continue;
      if (donor == nullptr || NeedsMore(*donor->group, *instance.group)) donor = &instance;
    }
    if (donor == nullptr) continue;
    --donor->group->count;
    donor->group = &empty;
    ++empty.count;
  }
}

void AddIfChanged(const Instance& instance, v1::Assign& plan) {
  v1::NodeAssignment wanted;
  wanted.set_node_id(instance.node->node_id());
  wanted.set_incarnation(instance.node->incarnation());
  if (instance.group != nullptr) {
    *wanted.mutable_stage() = instance.group->spec;
    wanted.mutable_app_ids()->Add(instance.group->app_ids.begin(), instance.group->app_ids.end());
    wanted.mutable_models()->Add(instance.group->models.begin(), instance.group->models.end());
  }
  const v1::Assignment& now = instance.node->assignment();
  const bool same =
      wanted.has_stage() == now.has_stage() &&
      SerializeDeterministically(wanted.stage()) == SerializeDeterministically(now.stage()) &&
      std::equal(wanted.app_ids().begin(), wanted.app_ids().end(), now.app_ids().begin(),
                 now.app_ids().end()) &&
      std::equal(wanted.models().begin(), wanted.models().end(), now.models().begin(),
                 now.models().end());
  if (!same) *plan.add_assignments() = std::move(wanted);
}

}  // namespace

v1::Assign PlanAssignments(const StateMachine& state) {
  v1::Assign plan;
  plan.set_base_revision(state.revision());
  std::map<std::string, std::vector<Instance>> sets;
  for (const auto& [node_id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    if (node.role() == v1::INSTANCE && IsAlive(node))
      sets[node.workflow_set()].push_back({.node = &node});
  }
  for (auto& [workflow_set, instances] : sets) {
    std::vector<Group> groups = MakeGroups(state);
    KeepWhatHolds(instances, groups);
    PlaceFree(instances, groups, /*pinned=*/true);
    PlaceFree(instances, groups, /*pinned=*/false);
    FillEmptyStages(instances, groups);
    for (const Instance& instance : instances) AddIfChanged(instance, plan);
  }
  return plan;
}

}  // namespace onepiece::nodemanager
