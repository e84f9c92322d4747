#include "nodemanager/assignment/assigner.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/canonical_bytes.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// A pool with its instances.
struct Group {
  Pool pool;
  std::string stage;                 // The pool's stage as bytes.
  int serving = 0;                   // Instances that serve it or are about to.
  int failed = 0;                    // Instances that could not load its model.
  std::map<std::string, int> hosts;  // How many of the serving ones each host has.
  std::map<std::string, int> zones;

  [[nodiscard]] int Count() const { return serving + (failed >= kEnoughFailedLoads ? failed : 0); }
  [[nodiscard]] bool IsFull() const {
    return pool.max_instances > 0 && serving + failed >= pool.max_instances;
  }
  // How many instances fail together with this node, as far as anybody knows: those of its host,
  // and those of its zone.
  [[nodiscard]] std::pair<int, int> Near(const v1::Node& node) const {
    const auto count = [](const std::map<std::string, int>& counts, const std::string& name) {
      const auto found = counts.find(name);
      return found == counts.end() ? 0 : found->second;
    };
    return {count(hosts, node.host()), count(zones, node.zone())};
  }
  // `change` is 1 for a node that comes and -1 for one that goes.
  void Change(const v1::Node& node, int change) {
    serving += change;
    if (!node.host().empty()) hosts[node.host()] += change;
    if (!node.zone().empty()) zones[node.zone()] += change;
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
  const std::string* assigned_pool;   // Of its assignment: the pool's id,
  const std::string* assigned_stage;  // and the stage as bytes.
  bool moving = false;                // A plan moves it.
  Standing standing = Standing::kFree;
  Group* group = nullptr;

  [[nodiscard]] const v1::Node& node() const { return record->node(); }
};

// True when a's Count() / min_instances is below b's. It multiplies crosswise to avoid rounding.
bool NeedsMore(const Group& a, const Group& b) {
  return static_cast<std::int64_t>(a.Count()) * b.pool.min_instances <
         static_cast<std::int64_t>(b.Count()) * a.pool.min_instances;
}

// True when a smaller part of a's instances than of b's is near the node. When all nodes are on one
// host, nothing is.
bool IsLessCrowded(const Group& a, const Group& b, const v1::Node& node) {
  const auto [a_host, a_zone] = a.Near(node);
  const auto [b_host, b_zone] = b.Near(node);
  const auto part = [](int near, const Group& other) {
    return static_cast<std::int64_t>(near) * other.serving;
  };
  return std::pair(part(a_host, b), part(a_zone, b)) < std::pair(part(b_host, a), part(b_zone, a));
}

// Nobody adds to the vector after this, so pointers into it stay valid.
std::vector<Group> MakeGroups(const StateMachine& state, const std::string& workflow_set) {
  std::vector<Group> groups;
  for (Pool& pool : PoolsOf(state, workflow_set)) {
    std::string stage = base::CanonicalBytes(pool.spec);
    groups.push_back({.pool = std::move(pool), .stage = std::move(stage)});
  }
  return groups;
}

// Finds where an instance stands before any free instance is placed.
void Settle(Instance& instance, std::vector<Group>& groups) {
  const v1::Node& node = instance.node();
  const v1::Placement& placement = node.placement();
  const bool idle = placement.removed() || (node.has_placement() && placement.pool().empty());
  const std::string pool = node.has_placement() ? placement.pool() : *instance.assigned_pool;
  if (!idle) {
    for (Group& group : groups) {
      if (group.pool.id == pool && MayServe(node, group.pool)) instance.group = &group;
    }
  }
  if (instance.group == nullptr && placement.pinned() && !idle && !instance.moving) {
    // The pool to which it is pinned is gone, for example because its model was replaced. It stays
    // with the stage.
    for (Group& group : groups) {
      if (pool.starts_with(group.pool.spec.stage() + "/") && MayServe(node, group.pool))
        instance.group = &group;
    }
  }
  const bool kept = instance.moving || placement.removed() ||
                    (placement.pinned() && (idle || instance.group != nullptr));
  if (instance.group == nullptr) {
    instance.standing = kept ? Standing::kFixed : idle ? Standing::kSpare : Standing::kFree;
    return;
  }
  const bool failed = instance.record->load_failed() && *instance.assigned_pool == pool;
  if (failed) {
    ++instance.group->failed;
  } else {
    instance.group->Change(node, 1);
  }
  instance.standing = kept || failed ? Standing::kFixed : Standing::kSettled;
}

// Gives the instance to the neediest group that may have it, if there is one.
void PlaceOne(Instance& instance, std::vector<Group>& groups) {
  Group* best = nullptr;
  for (Group& group : groups) {
    if (!MayServe(instance.node(), group.pool) || group.IsFull()) continue;
    if (best == nullptr || NeedsMore(group, *best) ||
        (!NeedsMore(*best, group) && IsLessCrowded(group, *best, instance.node())))
      best = &group;
  }
  if (best == nullptr) return;
  instance.group = best;
  instance.standing = Standing::kSettled;
  best->Change(instance.node(), 1);
}

// `pinned` says which instances are placed: those that their configuration pins to a stage, or the
// others. Pinned ones go first, because they have fewer places to go.
void PlaceFree(std::vector<Instance>& instances, std::vector<Group>& groups, bool pinned) {
  for (Instance& instance : instances) {
    if (instance.standing == Standing::kFree && instance.node().pinned_stage().empty() != pinned)
      PlaceOne(instance, groups);
  }
}

// Returns the spare instance that has fewest of the group near it, or null.
Instance* BestSpare(std::vector<Instance>& instances, const Group& group) {
  Instance* best = nullptr;
  for (Instance& instance : instances) {
    if (instance.standing != Standing::kSpare || instance.group != nullptr ||
        !MayServe(instance.node(), group.pool))
      continue;
    if (best == nullptr || group.Near(instance.node()) < group.Near(best->node())) best = &instance;
  }
  return best;
}

void TakeSpare(std::vector<Instance>& instances, std::vector<Group>& groups) {
  std::set<const Group*> without;  // No spare instance may serve them.
  for (;;) {
    Group* neediest = nullptr;
    for (Group& group : groups) {
      if (group.Count() >= group.pool.min_instances || without.contains(&group)) continue;
      if (neediest == nullptr || NeedsMore(group, *neediest)) neediest = &group;
    }
    if (neediest == nullptr) return;
    Instance* spare = BestSpare(instances, *neediest);
    if (spare == nullptr) {
      without.insert(neediest);
      continue;
    }
    spare->group = neediest;
    neediest->Change(spare->node(), 1);
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
      if (donor == nullptr || NeedsMore(*donor->group, *instance.group) ||
          (donor->group == instance.group &&
           donor->group->Near(donor->node()) < donor->group->Near(instance.node())))
        donor = &instance;
    }
    if (donor == nullptr) continue;
    donor->group->Change(donor->node(), -1);
    donor->group = &empty;
    empty.Change(donor->node(), 1);
  }
}

// The set that the node must be told because it works in another one than it named.
std::string ForeignSet(const v1::NodeRecord& record) {
  const std::string& set = record.node().workflow_set();
  return set == DescribedSet(record) ? "" : set;
}

// True when the node's assignment is what its group asks for. Nothing is copied for that, because
// it is true of nearly all instances nearly always.
bool HasWhatItNeeds(const Instance& instance) {
  const v1::Node& node = instance.node();
  const v1::Assignment& now = node.assignment();
  if (now.draining() || now.removed() != node.placement().removed() ||
      now.workflow_set() != ForeignSet(*instance.record) ||
      now.has_stage() != (instance.group != nullptr))
    return false;
  if (instance.group == nullptr) return true;
  const Pool& pool = instance.group->pool;
  return *instance.assigned_stage == instance.group->stage &&
         std::ranges::equal(now.app_ids(), pool.app_ids) &&
         std::ranges::equal(now.models(), pool.models);
}

void AddIfChanged(const Instance& instance,
                  google::protobuf::RepeatedPtrField<v1::NodeAssignment>& answer) {
  const v1::Node& node = instance.node();
  const bool placed_anew = instance.group != nullptr && node.has_placement() &&
                           node.placement().pool() != instance.group->pool.id;
  if (!placed_anew && HasWhatItNeeds(instance)) return;
  v1::NodeAssignment& wanted = *answer.Add();
  wanted.set_node_id(node.node_id());
  wanted.set_incarnation(node.incarnation());
  wanted.set_base_epoch(node.assignment().epoch());
  wanted.set_workflow_set(ForeignSet(*instance.record));
  wanted.set_removed(node.placement().removed());
  if (instance.group == nullptr) return;
  const Pool& pool = instance.group->pool;
  *wanted.mutable_stage() = pool.spec;
  wanted.mutable_app_ids()->Add(pool.app_ids.begin(), pool.app_ids.end());
  wanted.mutable_models()->Add(pool.models.begin(), pool.models.end());
  if (!placed_anew) return;
  *wanted.mutable_placement() = node.placement();
  wanted.mutable_placement()->set_pool(pool.id);
  // A pinned instance whose stage is gone was placed anew, and is no longer pinned.
  if (instance.standing != Standing::kFixed) wanted.mutable_placement()->clear_pinned();
}

// What matters here of a node's record, as bytes. What is left out changes no answer.
std::string InputsOf(v1::NodeRecord record) {
  record.clear_revision();
  record.clear_served_epoch();
  record.clear_served_app_ids();
  record.clear_drained();
  record.mutable_node()->clear_state();
  record.mutable_node()->clear_detail();
  return base::CanonicalBytes(record);
}

// True for instances that can serve. The others matter to no answer.
bool IsMember(const v1::Node& node) { return node.role() == v1::INSTANCE && IsAlive(node); }

}  // namespace

void Assigner::Read(const v1::NodeRecord& record, Facts& facts) const {
  facts.seen = round_;
  if (facts.revision == record.revision()) return;
  facts.revision = record.revision();
  std::string inputs = InputsOf(record);
  if (inputs == facts.inputs) return;
  facts.inputs = std::move(inputs);
  facts.changed = round_;
  facts.pool = AssignedPool(record.node());
  facts.stage = base::CanonicalBytes(record.node().assignment().stage());
}

std::map<std::string, Assigner::Stamp> Assigner::ReadAll(const StateMachine& state) {
  std::map<std::string, Stamp> stamps;
  auto stamp = stamps.end();
  auto facts = facts_.begin();  // Both maps are in the same order, so each search begins here.
  std::size_t members = 0;
  for (const auto& [id, record] : state.nodes()) {
    if (!IsMember(record.node())) continue;
    ++members;
    while (facts != facts_.end() && facts->first < id) ++facts;
    if (facts == facts_.end() || facts->first != id) facts = facts_.try_emplace(facts, id);
    Read(record, facts->second);
    if (stamp == stamps.end() || stamp->first != record.node().workflow_set())
      stamp = stamps.try_emplace(record.node().workflow_set()).first;
    ++stamp->second.members;
    stamp->second.newest = std::max(stamp->second.newest, facts->second.changed);
  }
  // A node that comes back after it was dead is new.
  if (facts_.size() > members)
    std::erase_if(facts_, [&](const auto& entry) { return entry.second.seen != round_; });
  for (const auto& [id, move] : RunningMoves(state.plans())) {
    const auto known = state.nodes().find(id);
    if (known == state.nodes().end()) continue;
    const v1::Node& node = known->second.node();
    if (const auto set = stamps.find(node.workflow_set()); set != stamps.end())
      set->second.moves.emplace_back(id, DrainsFirst(*move, node));
  }
  for (const auto& [key, limits] : state.pool_limits()) {
    if (const auto set = stamps.find(key.first); set != stamps.end())
      set->second.limits.emplace_back(key.second, limits.min_instances(), limits.max_instances(),
                                      limits.device(), limits.device_memory_bytes());
  }
  std::uint64_t newest_workflow = 0;
  for (const auto& [app_id, record] : state.workflows())
    newest_workflow = std::max(newest_workflow, record.revision());
  for (auto& [set, read] : stamps) {
    read.workflows = state.workflows().size();
    read.newest_workflow = newest_workflow;
  }
  return stamps;
}

void Assigner::Compute(const StateMachine& state, const std::string& workflow_set, Set& set) const {
  const std::map<std::string, bool> moving(set.stamp.moves.begin(), set.stamp.moves.end());
  std::vector<Group> groups = MakeGroups(state, workflow_set);
  std::vector<Instance> instances;
  for (const auto& [id, record] : state.nodes()) {
    if (!IsMember(record.node()) || record.node().workflow_set() != workflow_set) continue;
    const auto move = moving.find(id);
    if (move != moving.end() && move->second) continue;
    const Facts& facts = facts_.at(id);
    instances.push_back({.record = &record,
                         .assigned_pool = &facts.pool,
                         .assigned_stage = &facts.stage,
                         .moving = move != moving.end()});
  }
  for (Instance& instance : instances) Settle(instance, groups);
  PlaceFree(instances, groups, /*pinned=*/true);
  PlaceFree(instances, groups, /*pinned=*/false);
  TakeSpare(instances, groups);
  FillEmptyStages(instances, groups);
  set.answer.Clear();
  for (const Instance& instance : instances) AddIfChanged(instance, set.answer);
}

v1::Assign Assigner::Plan(const StateMachine& state) {
  ++round_;
  v1::Assign plan;
  plan.set_base_revision(state.revision());
  plan.set_base_plan_revision(state.plan_revision());
  const std::map<std::string, Stamp> stamps = ReadAll(state);
  std::erase_if(sets_, [&](const auto& entry) { return !stamps.contains(entry.first); });
  for (const auto& [name, stamp] : stamps) {
    Set& set = sets_[name];
    if (set.stamp != stamp) {
      set.stamp = stamp;
      Compute(state, name, set);
      ++computed_sets_;
    }
    plan.mutable_assignments()->MergeFrom(set.answer);
  }
  return plan;
}

}  // namespace onepiece::nodemanager
