// The state machine's commands about plans, holds and limits.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "nodemanager/state/node_change.h"
#include "nodemanager/state/plan_state.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {
namespace {

absl::Status Precondition(const char* reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

absl::Status PlanUnknown(const std::string& plan_id) {
  return base::MakeError(absl::StatusCode::kNotFound, "PLAN_UNKNOWN",
                         absl::StrCat("there is no plan '", plan_id, "'"), {{"plan_id", plan_id}});
}

std::string Who(const std::string& actor, const std::string& reason) {
  return absl::StrCat(actor, reason.empty() ? "" : ": ", reason);
}

// True when the node holds work of a workflow set that it has to leave. No message goes from one
// set to another, so this work cannot follow the node, and the node cannot pass it on from the
// other set. It must finish the work first.
bool HoldsWorkOfAnotherSet(const v1::NodeRecord& record, const v1::Placement& to) {
  const v1::Node& node = record.node();
  const std::string& set = to.workflow_set().empty() ? DescribedSet(record) : to.workflow_set();
  return IsAlive(node) && node.assignment().has_stage() && !node.assignment().draining() &&
         node.workflow_set() != set;
}

void SetPhase(v1::Move& move, v1::Move::Phase phase, std::int64_t time, const std::string& detail) {
  move.set_phase(phase);
  move.set_phase_since_unix_ms(time);
  move.set_detail(detail);
}

}  // namespace

const std::string& DescribedSet(const v1::NodeRecord& record) {
  return record.described_set().empty() ? record.node().workflow_set() : record.described_set();
}

std::pair<std::string, std::string> PlaceOf(const v1::NodeRecord& record,
                                            const v1::Placement& placement) {
  return {placement.workflow_set().empty() ? DescribedSet(record) : placement.workflow_set(),
          placement.pool()};
}

// A node that is placed into another set than its own remembers the set that it named, and gets it
// back when a placement without a set comes.
void StateMachine::Place(v1::NodeRecord& record, const v1::Placement& placement) {
  v1::Node& node = *record.mutable_node();
  const std::string described = DescribedSet(record);
  *node.mutable_placement() = placement;
  const bool moved = !placement.workflow_set().empty() && placement.workflow_set() != described;
  node.set_workflow_set(moved ? placement.workflow_set() : described);
  record.set_described_set(moved ? described : "");
}

v1::Plan* StateMachine::MutablePlan(const std::string& plan_id) {
  return const_cast<v1::Plan*>(FindPlan(plans_, plan_id));
}

absl::Status StateMachine::CheckMovable(const v1::Move& move) const {
  const std::string& id = move.node_id();
  const auto known = nodes_.find(id);
  if (known == nodes_.end()) {
    return base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN",
                           absl::StrCat("node '", id, "' is not registered"), {{"node_id", id}});
  }
  const v1::Node& node = known->second.node();
  if (!IsAlive(node)) return Precondition("NODE_DEAD", absl::StrCat("node '", id, "' is dead"));
  if (node.role() != v1::INSTANCE)
    return Precondition("NOT_AN_INSTANCE", absl::StrCat("node '", id, "' is not an instance"));
  if (FindMove(plans_, id) != nullptr)
    return Precondition("NODE_MOVING",
                        absl::StrCat("node '", id, "' is part of a plan that has not ended"));
  // `from` is where the move goes back to when it is reverted, so it must be where the node is now.
  if (node.has_placement() && !SamePlacement(node.placement(), move.from()))
    return base::MakeError(absl::StatusCode::kAborted, "STALE_REVISION",
                           absl::StrCat("node '", id, "' has another placement by now"));
  return absl::OkStatus();
}

absl::Status StateMachine::StartPlan(const v1::Plan& wanted, std::int64_t time) {
  ONEPIECE_RETURN_IF_ERROR(CheckPlan(wanted));
  if (wanted.base_revision() != 0 && wanted.base_revision() != plan_revision_) {
    return base::MakeError(absl::StatusCode::kAborted, "STALE_REVISION",
                           absl::StrCat("made for plan revision ", wanted.base_revision(),
                                        ", now it is ", plan_revision_));
  }
  for (const v1::Move& move : wanted.moves()) ONEPIECE_RETURN_IF_ERROR(CheckMovable(move));
  if (!wanted.undo_of().empty() && MutablePlan(wanted.undo_of()) == nullptr)
    return PlanUnknown(wanted.undo_of());
  const auto running = std::count_if(plans_.begin(), plans_.end(),
                                     [](const v1::Plan& plan) { return !HasEnded(plan); });
  if (static_cast<std::size_t>(running) >= kMaxRunningPlans) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_PLANS",
                           absl::StrCat(running, " plans have not ended, at most ",
                                        kMaxRunningPlans, ": wait, or confirm or undo one"));
  }
  v1::Plan made = wanted;
  // ElasticityService::Start() relies on this name: it finds the plan by the revision in the
  // result.
  if (made.plan_id().empty()) made.set_plan_id(absl::StrCat("plan-", revision_ + 1));
  if (MutablePlan(made.plan_id()) != nullptr) {
    return base::MakeError(absl::StatusCode::kAlreadyExists, "PLAN_EXISTS",
                           absl::StrCat("there is a plan '", made.plan_id(), "' already"));
  }
  made.set_create_unix_ms(time);
  made.clear_end_unix_ms();
  made.clear_undone_by();
  if (made.confirm_by_unix_ms() != 0)
    made.set_confirm_by_unix_ms(std::max(made.confirm_by_unix_ms(), time + 1));
  for (v1::Move& move : *made.mutable_moves()) {
    move.set_incarnation(nodes_.at(move.node_id()).node().incarnation());
    SetPhase(move, v1::Move::PENDING, time, "");
  }
  made.set_state(StateOf(made));
  if (v1::Plan* undone = MutablePlan(made.undo_of()); undone != nullptr)
    undone->set_undone_by(made.plan_id());
  ++revision_;
  ++plan_revision_;
  Audit(time, "start_plan", made.plan_id(), Who(made.actor(), made.reason()));
  plans_.push_back(std::move(made));
  // A plan that has not ended is never forgotten, because its moves would then have no way back.
  for (auto it = plans_.begin(); plans_.size() > kMaxPlans && it != plans_.end();)
    it = HasEnded(*it) ? plans_.erase(it) : it + 1;
  return absl::OkStatus();
}

void StateMachine::EnterPhase(v1::Move& move, v1::Move::Phase phase, std::int64_t time,
                              const std::string& detail) {
  SetPhase(move, phase, time, detail);
  ++revision_;
  const auto known = nodes_.find(move.node_id());
  if (known == nodes_.end()) return;  // The node died and has been forgotten.
  v1::NodeRecord& record = known->second;
  const NodeChange node_change(*this, record);
  const bool back = phase == v1::Move::REVERTING;
  if ((phase == v1::Move::DRAINING && IsAlive(record.node())) ||
      (back && HoldsWorkOfAnotherSet(record, move.from()))) {
    v1::Assignment& assignment = *record.mutable_node()->mutable_assignment();
    assignment.set_draining(true);
    assignment.set_epoch(++epoch_);
    changed_sets_.names.insert(record.node().workflow_set());
    record.clear_served_app_ids();
    record.clear_drained();
    record.clear_load_failed();
  } else if (phase == v1::Move::SWITCHING || back) {
    // The assigner's next command brings the assignment for this place. Until then the instance
    // stays out of the routes.
    Place(record, back ? move.from() : move.to());
    ++plan_revision_;
  } else {
    return;
  }
  Touch(record);
}

void StateMachine::Settle(v1::Plan& plan, std::int64_t time) {
  const v1::Plan::State before = plan.state(), now = StateOf(plan);
  plan.set_state(now);
  if (now == before) return;
  if (now == v1::Plan::UNCONFIRMED)
    // The plan has as much time for its confirmation from now on as it was given at its beginning.
    // Only the difference of the two old times counts, because another leader's clock may have
    // stamped them.
    plan.set_confirm_by_unix_ms(time + plan.confirm_by_unix_ms() - plan.create_unix_ms());
  if (!HasEnded(plan)) return;
  plan.set_end_unix_ms(time);
  ++plan_revision_;
  Audit(time, "end_plan", plan.plan_id(), v1::Plan::State_Name(now));
}

absl::Status StateMachine::AdvanceMove(const v1::AdvanceMove& change, std::int64_t time) {
  v1::Plan* plan = MutablePlan(change.plan_id());
  if (plan == nullptr) return PlanUnknown(change.plan_id());
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("detail", change.detail()));
  const auto move =
      std::find_if(plan->mutable_moves()->begin(), plan->mutable_moves()->end(),
                   [&](const v1::Move& each) { return each.node_id() == change.node_id(); });
  if (move == plan->mutable_moves()->end()) {
    return base::MakeError(
        absl::StatusCode::kNotFound, "MOVE_UNKNOWN",
        absl::StrCat("plan '", change.plan_id(), "' does not move '", change.node_id(), "'"));
  }
  if (!MayAdvance(change.from(), change.to(), version_)) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PHASE",
                           absl::StrCat("no move goes from ", v1::Move::Phase_Name(change.from()),
                                        " to ", v1::Move::Phase_Name(change.to())));
  }
  // The move has gone on since: another command, or a retry of this one, came first.
  if (move->phase() != change.from()) return absl::OkStatus();
  EnterPhase(*move, change.to(), time, change.detail());
  Audit(time, "advance_move", change.plan_id(),
        absl::StrCat(change.node_id(), " ", v1::Move::Phase_Name(change.to()),
                     change.detail().empty() ? "" : ": ", change.detail()));
  Settle(*plan, time);
  return absl::OkStatus();
}

absl::Status StateMachine::DecidePlan(const v1::DecidePlan& change, std::int64_t time) {
  v1::Plan* plan = MutablePlan(change.plan_id());
  if (plan == nullptr) return PlanUnknown(change.plan_id());
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", change.actor()));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("reason", change.reason()));
  const bool confirm = change.decision() == v1::DecidePlan::CONFIRM;
  if (!confirm && change.decision() != v1::DecidePlan::REVERT) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_DECISION",
                           "a plan is confirmed or reverted", {{"field", "decision"}});
  }
  const bool may =
      plan->state() == v1::Plan::UNCONFIRMED || (!confirm && plan->state() == v1::Plan::RUNNING);
  if (!may) {
    return Precondition("PLAN_STATE", absl::StrCat("plan '", change.plan_id(), "' is ",
                                                   v1::Plan::State_Name(plan->state())));
  }
  Audit(time, confirm ? "confirm_plan" : "revert_plan", change.plan_id(),
        Who(change.actor(), change.reason()));
  if (confirm) {
    plan->clear_confirm_by_unix_ms();
    ++revision_;
  } else {
    // All moves go back, those that are done too. A move that has not begun has nothing to undo.
    // One that goes back already goes on.
    for (v1::Move& move : *plan->mutable_moves()) {
      if (move.phase() == v1::Move::REVERTING || move.phase() == v1::Move::REVERTED ||
          move.phase() == v1::Move::FAILED)
        continue;
      const bool begun = move.phase() != v1::Move::PENDING;
      EnterPhase(move, begun ? v1::Move::REVERTING : v1::Move::REVERTED, time, change.reason());
    }
  }
  Settle(*plan, time);
  return absl::OkStatus();
}

absl::Status StateMachine::SetHold(const v1::Hold& change, std::int64_t time) {
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", change.actor()));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("reason", change.reason()));
  hold_ = change;
  ++revision_;
  ++plan_revision_;
  Audit(time, "set_hold", change.active() ? "on" : "off", Who(change.actor(), change.reason()));
  return absl::OkStatus();
}

absl::Status StateMachine::SetPoolLimits(const v1::SetPoolLimits& change, std::int64_t time) {
  const v1::PoolLimits& limits = change.limits();
  ONEPIECE_RETURN_IF_ERROR(CheckLimits(limits));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", change.actor()));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("reason", change.reason()));
  const std::pair key(limits.workflow_set(), limits.pool());
  const auto known = pool_limits_.find(key);
  v1::PoolLimits made = limits;
  // The device comes with the configuration. Who sets bounds alone keeps it.
  if (version_ >= 4 && known != pool_limits_.end() && made.device().empty() &&
      made.device_memory_bytes() == 0) {
    made.set_device(known->second.device());
    made.set_device_memory_bytes(known->second.device_memory_bytes());
  }
  const v1::PoolLimits before = known == pool_limits_.end() ? v1::PoolLimits() : known->second;
  if (made.min_instances() == 0 && made.max_instances() == 0 &&
      (version_ < 4 || (made.device().empty() && made.device_memory_bytes() == 0))) {
    pool_limits_.erase(key);
  } else if (known == pool_limits_.end() && pool_limits_.size() >= kMaxPoolLimits) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_LIMITS",
                           absl::StrCat(kMaxPoolLimits,
                                        " pools have limits already: take some "
                                        "back by setting both bounds to 0"));
  } else {
    pool_limits_[key] = std::move(made);
  }
  ++revision_;
  ++plan_revision_;
  Audit(time, "set_pool_limits", absl::StrCat(limits.workflow_set(), " ", limits.pool()),
        absl::StrCat(limits.min_instances(), " to ", limits.max_instances(), ", ",
                     Who(change.actor(), change.reason())));
  const auto now = pool_limits_.find(key);
  const v1::PoolLimits after = now == pool_limits_.end() ? v1::PoolLimits() : now->second;
  if (config_revision() > 0 && base::CanonicalBytes(before) != base::CanonicalBytes(after))
    NoteConfig(change.actor(), change.reason(), Config(), time);
  return absl::OkStatus();
}

}  // namespace onepiece::nodemanager
