#include <algorithm>
#include <map>
#include <set>

#include "cluster/base/seconds.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/plans/measured.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// The assigner and the policy give up a pool together. Otherwise one would go on sending the
// instances that the other leaves out.
static_assert(kEnoughFailedLoads == kEnoughFailures);

// Workflow set and pool. An empty pool means idle.
using Place = std::pair<std::string, std::string>;

// Where the placement put the node, which may have been forgotten since.
Place PlaceThen(const StateMachine& state, const std::string& node_id,
                const v1::Placement& placement) {
  const auto known = state.nodes().find(node_id);
  return PlaceOf(known == state.nodes().end() ? v1::NodeRecord::default_instance() : known->second,
                 placement);
}

void AddPools(const StateMachine& state, const Telemetry& telemetry, const std::string& set,
              const std::vector<Pool>& pools, PolicyView& view) {
  for (const Pool& pool : pools) {
    PoolView& added = view.pools.emplace_back();
    added.workflow_set = set;
    added.id = pool.id;
    added.stage = pool.spec.stage();
    added.min_instances = pool.min_instances;
    added.max_instances = pool.max_instances;
    added.load_s = telemetry.window->LoadSeconds(added.stage).value_or(0);
  }
  for (const auto& [id, record] : state.nodes()) {
    if (record.node().workflow_set() != set || !IsAlive(record.node()) || !record.load_failed())
      continue;
    const std::string assigned = AssignedPool(record.node());
    const auto pool = std::find_if(view.pools.begin(), view.pools.end(), [&](const PoolView& each) {
      return each.workflow_set == set && each.id == assigned;
    });
    if (pool != view.pools.end()) ++pool->unloadable;
  }
  SetView& added = view.sets.emplace_back();
  added.workflow_set = set;
  added.model = MeasuredModel(state, telemetry, set, pools);
  SetWorkers(added.model, set, view.instances);
}

// Adds when plans of any kind last changed each pool, and what the plans of policies did within
// `memory`.
void AddHistory(const StateMachine& state, const Telemetry& telemetry, base::Duration memory,
                PolicyView& view) {
  std::map<Place, base::MonotonicTime> changed;
  std::map<Place, int> failed_plans;
  for (const v1::Plan& plan : state.plans()) {
    std::set<Place> failed;
    for (const v1::Move& move : plan.moves()) {
      if (move.phase() == v1::Move::PENDING) continue;
      const Place from = PlaceThen(state, move.node_id(), move.from());
      const Place to = PlaceThen(state, move.node_id(), move.to());
      // A move that was reverted has changed both pools too.
      const base::MonotonicTime moved =
          telemetry.now - telemetry.ages->AgeOf(plan, move, telemetry.now);
      for (const Place& place : {from, to}) {
        const auto [known, is_new] = changed.try_emplace(place, moved);
        if (!is_new) known->second = std::max(known->second, moved);
      }
      const base::MonotonicTime at = telemetry.now - telemetry.ages->AgeOf(plan, telemetry.now);
      if (!plan.actor().starts_with("policy:") || telemetry.now - at > memory) continue;
      if (move.phase() == v1::Move::REVERTED || move.phase() == v1::Move::FAILED) {
        failed.insert(to);
        continue;
      }
      view.past.push_back({.at = at,
                           .node_id = move.node_id(),
                           .from_pool = from.second,
                           .to_pool = to.second,
                           .from_set = from.first,
                           .to_set = to.first});
    }
    for (const Place& place : failed) ++failed_plans[place];
  }
  for (PoolView& pool : view.pools) {
    pool.failed_plans = failed_plans[{pool.workflow_set, pool.id}];
    if (const auto last = changed.find({pool.workflow_set, pool.id}); last != changed.end())
      pool.changed = last->second;
  }
}

}  // namespace

PolicyView MakePolicyView(const StateMachine& state, const Telemetry& telemetry,
                          const v1::ElasticityConfig& config) {
  PolicyView view;
  view.now = telemetry.now;
  view.instances = PlacedInstances(state, telemetry);
  for (const std::string& set : WorkflowSets(state))
    AddPools(state, telemetry, set, PoolsOf(state, set), view);
  AddHistory(state, telemetry, base::FromSeconds(kFlappingWindows * config.window_s()), view);
  for (const v1::Plan& plan : state.plans()) {
    if (HasEnded(plan)) continue;
    for (const v1::Move& move : plan.moves())
      view.moves_under_way += move.phase() == v1::Move::PENDING || IsUnderWay(move.phase());
  }
  return view;
}

}  // namespace onepiece::nodemanager
