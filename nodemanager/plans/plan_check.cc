// Checks whether a plan may begin, and makes the plan that undoes another.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/plans/measured.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

using Place = std::pair<std::string, std::string>;  // Workflow set and pool id.

absl::Status Refuse(absl::StatusCode code, const char* reason, const std::string& node_id,
                    const std::string& message) {
  return base::MakeError(code, reason, absl::StrCat("node '", node_id, "': ", message),
                         {{"node_id", node_id}});
}

absl::Status Precondition(const char* reason, const std::string& node_id,
                          const std::string& message) {
  return Refuse(absl::StatusCode::kFailedPrecondition, reason, node_id, message);
}

// Where plans have put the node, or else where the assigner has.
v1::Placement PlacementOf(const v1::NodeRecord& record) {
  if (record.node().has_placement()) return record.node().placement();
  v1::Placement placement;
  placement.set_pool(AssignedPool(record.node()));
  return placement;
}

absl::StatusOr<std::string> ResolvePool(const std::vector<Pool>& pools, const std::string& node_id,
                                        const std::string& name) {
  if (name.empty() || FindPool(pools, name) != nullptr) return name;
  std::vector<std::string> matches;
  for (const Pool& pool : pools) {
    if (pool.spec.stage() == name) matches.push_back(pool.id);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.empty())
    return Refuse(absl::StatusCode::kNotFound, "POOL_UNKNOWN", node_id,
                  absl::StrCat("no workflow has a pool or stage '", name, "'"));
  return Refuse(absl::StatusCode::kInvalidArgument, "POOL_AMBIGUOUS", node_id,
                absl::StrCat("stage '", name, "' is in ", matches.size(), " pools, such as '",
                             matches[0], "' and '", matches[1], "': name the pool"));
}

bool IsSet(const StateMachine& state, const std::string& name) {
  for (const auto& [id, record] : state.nodes()) {
    if (IsAlive(record.node()) &&
        (record.node().workflow_set() == name || DescribedSet(record) == name))
      return true;
  }
  return false;
}

absl::Status CheckNode(const StateMachine& state, const std::string& id) {
  const auto known = state.nodes().find(id);
  if (known == state.nodes().end())
    return Refuse(absl::StatusCode::kNotFound, "NODE_UNKNOWN", id, "it is not registered");
  if (known->second.node().role() != v1::INSTANCE)
    return Precondition("NOT_AN_INSTANCE", id, "only instances can move");
  if (!IsAlive(known->second.node())) return Precondition("NODE_DEAD", id, "it is dead");
  if (FindMove(state.plans(), id) != nullptr)
    return Precondition("NODE_MOVING", id, "it is part of a plan that has not ended");
  return absl::OkStatus();
}

// Fills in the move and checks what concerns it alone.
absl::Status CompleteMove(const StateMachine& state, v1::Move& move) {
  const std::string& id = move.node_id();
  ONEPIECE_RETURN_IF_ERROR(CheckNode(state, id));
  const v1::NodeRecord& record = state.nodes().at(id);
  const v1::Node& node = record.node();
  v1::Placement& to = *move.mutable_to();
  if (to.workflow_set() == DescribedSet(record)) to.clear_workflow_set();
  const std::string set = PlaceOf(record, to).first;
  if (!IsSet(state, set))
    return Refuse(absl::StatusCode::kNotFound, "WORKFLOW_SET_UNKNOWN", id,
                  absl::StrCat("no live node is of workflow set '", set, "'"));
  const std::vector<Pool> pools = PoolsOf(state, set);
  ONEPIECE_ASSIGN_OR_RETURN(*to.mutable_pool(), ResolvePool(pools, id, to.pool()));
  if (to.removed() && !to.pool().empty())
    return Refuse(absl::StatusCode::kInvalidArgument, "BAD_PLACEMENT", id,
                  "an instance that is removed has no pool");
  if (const Pool* pool = FindPool(pools, to.pool()); pool != nullptr && !MayServe(node, *pool)) {
    if (!HasDevice(node, *pool))
      return Precondition("NO_DEVICE", id,
                          absl::StrCat("it does not have ", NeededDevice(*pool), ", which '",
                                       to.pool(), "' needs"));
    return Precondition("NODE_PINNED", id,
                        absl::StrCat("its configuration pins it to stage '", node.pinned_stage(),
                                     "'; it cannot serve '", to.pool(), "'"));
  }
  *move.mutable_from() = PlacementOf(record);
  if (SamePlacement(move.from(), to))
    return Precondition("NOTHING_TO_DO", id, "it is there already");
  move.set_incarnation(node.incarnation());
  move.set_phase(v1::Move::PENDING);
  move.clear_phase_since_unix_ms();
  move.clear_detail();
  return absl::OkStatus();
}

// Checks the plan as a whole, so that a plan may exchange instances between pools that are at their
// bounds. A bound that is violated already refuses only a plan that makes it worse.
absl::Status CheckBounds(const StateMachine& state, const v1::Plan& plan) {
  const std::map<Place, int> before = CountInstances(state);
  std::map<Place, int> after = before;
  for (const v1::Move& move : plan.moves()) {
    const v1::NodeRecord& record = state.nodes().at(move.node_id());
    // CountInstances() leaves out an instance whose model does not load, so `before` does not hold
    // it.
    if (!record.load_failed()) --after[PlaceOf(record, move.from())];
    ++after[PlaceOf(record, move.to())];
  }
  const auto count = [](const std::map<Place, int>& counts, const Place& place) {
    const auto found = counts.find(place);
    return found == counts.end() ? 0 : found->second;
  };
  for (const v1::Move& move : plan.moves()) {
    const v1::NodeRecord& record = state.nodes().at(move.node_id());
    for (const bool leaves : {true, false}) {
      const Place place = PlaceOf(record, leaves ? move.from() : move.to());
      const std::vector<Pool> pools = PoolsOf(state, place.first);
      const Pool* pool = FindPool(pools, place.second);
      if (pool == nullptr) continue;  // The idle pool, or a pool that is gone, has no bounds.
      const int now = count(before, place), then = count(after, place);
      if (leaves && then < now && then < pool->min_instances)
        return Precondition("BELOW_MINIMUM", move.node_id(),
                            absl::StrCat("pool '", pool->id, "' would have ", then,
                                         " instances, at least ", pool->min_instances, " stay"));
      if (!leaves && then > now && pool->max_instances > 0 && then > pool->max_instances)
        return Precondition("ABOVE_MAXIMUM", move.node_id(),
                            absl::StrCat("pool '", pool->id, "' would have ", then,
                                         " instances, at most ", pool->max_instances));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::map<Place, int> CountInstances(const StateMachine& state) {
  const std::map<std::string, const v1::Move*> moves = RunningMoves(state.plans());
  std::map<Place, int> counts;
  for (const auto& [id, record] : state.nodes()) {
    if (record.node().role() != v1::INSTANCE || !IsAlive(record.node()) || record.load_failed())
      continue;
    const auto move = moves.find(id);
    const bool leaves = move != moves.end() && (move->second->phase() == v1::Move::PENDING ||
                                                move->second->phase() == v1::Move::DRAINING);
    ++counts[PlaceOf(record, leaves ? move->second->to() : PlacementOf(record))];
  }
  return counts;
}

Place CountedPlace(const StateMachine& state, const v1::Move& move) {
  const auto known = state.nodes().find(move.node_id());
  // A node that has been forgotten since belongs to no set any more.
  const v1::NodeRecord& record =
      known == state.nodes().end() ? v1::NodeRecord::default_instance() : known->second;
  return PlaceOf(record, move.from().pool().empty() ? move.to() : move.from());
}

std::map<Place, MoveCounts> CountMoves(const StateMachine& state) {
  std::map<Place, MoveCounts> counts;
  for (const auto& [id, move] : RunningMoves(state.plans())) {
    const v1::Move::Phase phase = move->phase();
    if (phase != v1::Move::PENDING && !IsUnderWay(phase)) continue;
    MoveCounts& place = counts[CountedPlace(state, *move)];
    ++(move->from().pool().empty() ? place.arriving : place.leaving);
    place.under_way += IsUnderWay(phase) ? 1 : 0;
  }
  return counts;
}

absl::StatusOr<v1::Plan> CompletePlan(const StateMachine& state, v1::Plan plan) {
  ONEPIECE_RETURN_IF_ERROR(CheckPlan(plan));
  for (v1::Move& move : *plan.mutable_moves()) ONEPIECE_RETURN_IF_ERROR(CompleteMove(state, move));
  ONEPIECE_RETURN_IF_ERROR(CheckBounds(state, plan));
  return plan;
}

absl::StatusOr<v1::Plan> InversePlan(const StateMachine& state, const v1::Plan& plan) {
  if (plan.state() != v1::Plan::DONE)
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "PLAN_STATE",
        absl::StrCat("plan '", plan.plan_id(), "' is ", v1::Plan::State_Name(plan.state()),
                     "; only a plan that is DONE can be undone"));
  // An undo that was itself reverted or failed has undone nothing.
  if (const v1::Plan* undo = FindPlan(state.plans(), plan.undone_by());
      !plan.undone_by().empty() &&
      (undo == nullptr || !HasEnded(*undo) || undo->state() == v1::Plan::DONE))
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "ALREADY_UNDONE",
        absl::StrCat("plan '", plan.plan_id(), "' is undone by '", plan.undone_by(), "'"));
  v1::Plan inverse;
  inverse.set_undo_of(plan.plan_id());
  for (int i = plan.moves_size() - 1; i >= 0; --i) {
    const v1::Move& move = plan.moves(i);
    if (move.phase() == v1::Move::REVERTED) continue;  // There is nothing to undo.
    const auto known = state.nodes().find(move.node_id());
    if (known == state.nodes().end() || !IsAlive(known->second.node()))
      return Precondition("CHANGED_SINCE", move.node_id(), "it has ended since");
    if (FindMove(state.plans(), move.node_id()) != nullptr ||
        !SamePlacement(known->second.node().placement(), move.to()))
      return Precondition("CHANGED_SINCE", move.node_id(), "it has been moved since");
    v1::Move& back = *inverse.add_moves();
    back.set_node_id(move.node_id());
    *back.mutable_to() = move.from();
  }
  return CompletePlan(state, std::move(inverse));
}

}  // namespace onepiece::nodemanager
