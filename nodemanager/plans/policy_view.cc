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

// Whether the plan's moves to a place have come back.
struct Outcome {
  bool failed = false, other = false;
};

// Adds what the plans of policies did within `memory`: their moves to the view, and to
// `failed_plans` the places to which none of a plan's moves has gone well.
void AddPast(const StateMachine& state, const v1::Plan& plan, base::MonotonicTime at,
             std::map<Place, int>& failed_plans, PolicyView& view) {
  std::map<Place, Outcome> outcomes;
  for (const v1::Move& move : plan.moves()) {
    const Place from = PlaceThen(state, move.node_id(), move.from());
    const Place to = PlaceThen(state, move.node_id(), move.to());
    if (move.phase() == v1::Move::REVERTED || move.phase() == v1::Move::FAILED) {
      outcomes[to].failed = true;
      continue;
    }
    outcomes[to].other = true;
    if (move.phase() == v1::Move::PENDING) continue;
    view.past.push_back({.at = at,
                         .node_id = move.node_id(),
                         .from_pool = from.second,
                         .to_pool = to.second,
                         .from_set = from.first,
                         .to_set = to.first});
  }
  for (const auto& [place, outcome] : outcomes) {
    if (outcome.failed && !outcome.other) ++failed_plans[place];
  }
}

// Adds when plans of any kind changed each pool within a cooldown, and what the plans of policies
// did within kFlappingWindows.
void AddHistory(const StateMachine& state, const Telemetry& telemetry,
                const v1::ElasticityConfig& config, PolicyView& view) {
  const base::Duration memory = base::FromSeconds(kFlappingWindows * config.window_s());
  std::map<Place, std::vector<base::MonotonicTime>> changes;
  std::map<Place, int> failed_plans;
  for (const v1::Plan& plan : state.plans()) {
    for (const v1::Move& move : plan.moves()) {
      const base::Duration age = telemetry.ages->AgeOf(plan, move, telemetry.now);
      if (move.phase() == v1::Move::PENDING || age > base::FromSeconds(config.cooldown_s()))
        continue;
      // A move that was reverted has changed both pools too.
      for (const v1::Placement* placement : {&move.from(), &move.to()})
        changes[PlaceThen(state, move.node_id(), *placement)].push_back(telemetry.now - age);
    }
    const base::Duration age = telemetry.ages->AgeOf(plan, telemetry.now);
    if (plan.actor().starts_with("policy:") && age <= memory)
      AddPast(state, plan, telemetry.now - age, failed_plans, view);
  }
  const std::map<Place, MoveCounts> moves = CountMoves(state);
  for (PoolView& pool : view.pools) {
    const Place place = {pool.workflow_set, pool.id};
    pool.failed_plans = failed_plans[place];
    pool.changes = std::move(changes[place]);
    if (const auto counts = moves.find(place); counts != moves.end()) {
      pool.leaving = counts->second.leaving;
      pool.arriving = counts->second.arriving;
    }
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
  AddHistory(state, telemetry, config, view);
  for (const v1::Plan& plan : state.plans()) {
    if (HasEnded(plan)) continue;
    for (const v1::Move& move : plan.moves())
      view.moves_under_way += move.phase() == v1::Move::PENDING || IsUnderWay(move.phase());
  }
  return view;
}

}  // namespace onepiece::nodemanager
