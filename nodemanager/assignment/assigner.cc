#include "nodemanager/assignment/assigner.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cluster/base/canonical_bytes.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// A pool with its instances.
struct Group {
  Pool pool;
  int serving = 0;  // Instances that serve it or are about to.
  int failed = 0;   // Instances that could not load its model.

  [[nodiscard]] int Count() const { return serving + (failed >= kEnoughFailedLoads ? failed : 0); }
  [[nodiscard]] bool IsFull() const {
    return pool.max_instances > 0 && serving + failed >= pool.max_instances;
  }
};

enum class Standing {
  kFree,     // It has no place and goes where it is needed.
  kSettled,  // It has a group and may be taken from it.
  kSpare,    // It is idle by its placement and may be taken.
  kFixed,    // It stays as it is, with a group or idle.
};

struct Instance {
  const v1::NodeRecord* record;
  Standing standing = Standing::kFree;
  Group* group = nullptr;

  [[nodiscard]] const v1::Node& node() const { return record->node(); }
};

// True when a's Count() / min_instances is below b's. It multiplies crosswise to avoid rounding.
bool NeedsMore(const Group& a, const Group& b) {
  return static_cast<std::int64_t>(a.Count()) * b.pool.min_instances <
         static_cast<std::int64_t>(b.Count()) * a.pool.min_instances;
}

// Nobody adds to the vector after this, so pointers into it stay valid.
std::vector<Group> MakeGroups(const StateMachine& state, const std::string& workflow_set) {
  std::vector<Group> groups;
  for (Pool& pool : PoolsOf(state, workflow_set)) groups.push_back({.pool = std::move(pool)});
  return groups;
}

// Finds where an instance stands before any free instance is placed.
void Settle(Instance& instance, bool moving, std::vector<Group>& groups) {
  const v1::Node& node = instance.node();
  const v1::Placement& placement = node.placement();
  const bool idle = placement.removed() || (node.has_placement() && placement.pool().empty());
  const std::string pool = node.has_placement() ? placement.pool() : AssignedPool(node);
  if (!idle) {
    for (Group& group : groups) {
      if (group.pool.id == pool && MayServe(node, group.pool)) instance.group = &group;
    }
  }
  if (instance.group == nullptr && placement.pinned() && !idle && !moving) {
    // The pool to which it is pinned is gone, for example because its model was replaced. It stays
    // with the stage.
    for (Group& group : groups) {
      if (pool.starts_with(group.pool.spec.stage() + "/") && MayServe(node, group.pool))
        instance.group = &group;
    }
  }
  const bool kept =
      moving || placement.removed() || (placement.pinned() && (idle || instance.group != nullptr));
  if (instance.group == nullptr) {
    instance.standing = kept ? Standing::kFixed : idle ? Standing::kSpare : Standing::kFree;
    return;
  }
  const bool failed = instance.record->load_failed() && AssignedPool(node) == pool;
  ++(failed ? instance.group->failed : instance.group->serving);
  instance.standing = kept || failed ? Standing::kFixed : Standing::kSettled;
}

// Gives the instance to the neediest group that may have it, if there is one.
template <typename May>
void PlaceWhere(Instance& instance, std::vector<Group>& groups, const May& may) {
  for (Group& group : groups) {
    if (!MayServe(instance.node(), group.pool) || !may(group)) continue;
    if (instance.group == nullptr || NeedsMore(group, *instance.group)) instance.group = &group;
  }
  if (instance.group != nullptr) ++instance.group->serving;
}

// `pinned` says which instances are placed: those that their configuration pins to a stage, or the
// others. Pinned ones go first, because they have fewer places to go.
void PlaceFree(std::vector<Instance>& instances, std::vector<Group>& groups, bool pinned) {
  for (Instance& instance : instances) {
    if (instance.standing != Standing::kFree || instance.node().pinned_stage().empty() == pinned)
      continue;
    PlaceWhere(instance, groups, [](const Group& group) { return !group.IsFull(); });
    if (instance.group != nullptr) instance.standing = Standing::kSettled;
  }
}

void TakeSpare(std::vector<Instance>& instances, std::vector<Group>& groups) {
  for (Instance& instance : instances) {
    if (instance.standing != Standing::kSpare) continue;
    PlaceWhere(instance, groups,
               [](const Group& group) { return group.Count() < group.pool.min_instances; });
  }
}

// The donor is the instance whose group has most for its minimum. A group with one instance gives
// none, because it would be empty next.
void FillEmptyStages(std::vector<Instance>& instances, std::vector<Group>& groups) {
  for (Group& empty : groups) {
    if (empty.Count() > 0) continue;
    Instance* donor = nullptr;
    for (Instance& instance : instances) {
      if (instance.standing != Standing::kSettled || instance.group->serving < 2 ||
          !MayServe(instance.node(), empty.pool))
        continue;
      if (donor == nullptr || NeedsMore(*donor->group, *instance.group)) donor = &instance;
    }
    if (donor == nullptr) continue;
    --donor->group->serving;
    donor->group = &empty;
    ++empty.serving;
  }
}

bool IsSame(const v1::NodeAssignment& wanted, const v1::Assignment& now) {
  return wanted.has_stage() == now.has_stage() && wanted.draining() == now.draining() &&
         wanted.removed() == now.removed() && wanted.workflow_set() == now.workflow_set() &&
         base::CanonicalBytes(wanted.stage()) == base::CanonicalBytes(now.stage()) &&
         std::equal(wanted.app_ids().begin(), wanted.app_ids().end(), now.app_ids().begin(),
                    now.app_ids().end()) &&
         std::equal(wanted.models().begin(), wanted.models().end(), now.models().begin(),
                    now.models().end());
}

void AddIfChanged(const Instance& instance, v1::Assign& plan) {
  const v1::Node& node = instance.node();
  v1::NodeAssignment wanted;
  wanted.set_node_id(node.node_id());
  wanted.set_incarnation(node.incarnation());
  if (node.workflow_set() != DescribedSet(*instance.record))
    wanted.set_workflow_set(node.workflow_set());
  wanted.set_removed(node.placement().removed());
  if (instance.group != nullptr) {
    const Pool& pool = instance.group->pool;
    *wanted.mutable_stage() = pool.spec;
    wanted.mutable_app_ids()->Add(pool.app_ids.begin(), pool.app_ids.end());
    wanted.mutable_models()->Add(pool.models.begin(), pool.models.end());
    if (node.has_placement() && node.placement().pool() != pool.id) {
      *wanted.mutable_placement() = node.placement();
      wanted.mutable_placement()->set_pool(pool.id);
      // A pinned instance whose stage is gone was placed anew, and is no longer pinned.
      if (instance.standing != Standing::kFixed) wanted.mutable_placement()->clear_pinned();
    }
  }
  if (wanted.has_placement() || !IsSame(wanted, node.assignment()))
    *plan.add_assignments() = std::move(wanted);
}

}  // namespace

v1::Assign PlanAssignments(const StateMachine& state) {
  v1::Assign plan;
  plan.set_base_revision(state.revision());
  std::map<std::string, const v1::Move*> moving;
  for (const v1::Plan& each : state.plans()) {
    if (HasEnded(each)) continue;
    for (const v1::Move& move : each.moves()) moving[move.node_id()] = &move;
  }
  std::map<std::string, std::vector<Instance>> sets;
  for (const auto& [node_id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    if (node.role() != v1::INSTANCE || !IsAlive(node)) continue;
    const auto move = moving.find(node_id);
    if (move != moving.end() && DrainsFirst(*move->second, node)) continue;
    sets[node.workflow_set()].push_back({.record = &record});
  }
  for (auto& [workflow_set, instances] : sets) {
    std::vector<Group> groups = MakeGroups(state, workflow_set);
    for (Instance& instance : instances)
      Settle(instance, moving.contains(instance.node().node_id()), groups);
    PlaceFree(instances, groups, /*pinned=*/true);
    PlaceFree(instances, groups, /*pinned=*/false);
    TakeSpare(instances, groups);
    FillEmptyStages(instances, groups);
    for (const Instance& instance : instances) AddIfChanged(instance, plan);
  }
  return plan;
}

}  // namespace onepiece::nodemanager
