#include "nodemanager/state/plan_state.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace onepiece::nodemanager {

bool HasEnded(const v1::Plan& plan) {
  return plan.state() == v1::Plan::DONE || plan.state() == v1::Plan::REVERTED ||
         plan.state() == v1::Plan::FAILED;
}

bool IsUnderWay(v1::Move::Phase phase) {
  return phase == v1::Move::DRAINING || phase == v1::Move::SWITCHING ||
         phase == v1::Move::REVERTING;
}

bool DrainsFirst(const v1::Move& move, const v1::Node& node) {
  return move.phase() == v1::Move::DRAINING ||
         (move.phase() == v1::Move::REVERTING && !SamePlacement(node.placement(), move.from()));
}

bool MayAdvance(v1::Move::Phase from, v1::Move::Phase to, std::uint32_t version) {
  const bool alone = version >= 3;
  switch (from) {
    case v1::Move::PENDING:
      // A move that has not begun has nothing to undo.
      return to == v1::Move::DRAINING || to == v1::Move::SWITCHING ||
             (alone && to == v1::Move::REVERTED);
    case v1::Move::DRAINING:
      return to == v1::Move::SWITCHING || (alone && to == v1::Move::REVERTING);
    case v1::Move::SWITCHING:
      return to == v1::Move::DONE || (alone && to == v1::Move::REVERTING);
    case v1::Move::REVERTING:
      // REVERTING twice: the first time it drains at its new place, the second time it goes back.
      return to == v1::Move::REVERTING || to == v1::Move::REVERTED || to == v1::Move::FAILED;
    default:
      return false;
  }
}

v1::Plan::State StateOf(const v1::Plan& plan) {
  bool active = false, done = false, reverting = false, back = false, failed = false;
  for (const v1::Move& move : plan.moves()) {
    active |= move.phase() == v1::Move::PENDING || move.phase() == v1::Move::DRAINING ||
              move.phase() == v1::Move::SWITCHING;
    done |= move.phase() == v1::Move::DONE;
    reverting |= move.phase() == v1::Move::REVERTING;
    back |= move.phase() == v1::Move::REVERTED;
    failed |= move.phase() == v1::Move::FAILED;
  }
  // REVERTING means that no move goes on. DecidePlan leaves none DONE, either.
  if (active || (reverting && done)) return v1::Plan::RUNNING;
  if (reverting) return v1::Plan::REVERTING;
  if (failed) return v1::Plan::FAILED;
  if (back && !done) return v1::Plan::REVERTED;
  return plan.confirm_by_unix_ms() == 0 ? v1::Plan::DONE : v1::Plan::UNCONFIRMED;
}

const v1::Move* FindMove(const std::deque<v1::Plan>& plans, const std::string& node_id) {
  for (const v1::Plan& plan : plans) {
    if (HasEnded(plan)) continue;
    for (const v1::Move& move : plan.moves()) {
      if (move.node_id() == node_id) return &move;
    }
  }
  return nullptr;
}

std::map<std::string, const v1::Move*> RunningMoves(const std::deque<v1::Plan>& plans) {
  std::map<std::string, const v1::Move*> running;
  for (const v1::Plan& plan : plans) {
    if (HasEnded(plan)) continue;
    for (const v1::Move& move : plan.moves()) running.emplace(move.node_id(), &move);
  }
  return running;
}

const v1::Plan* FindPlan(const std::deque<v1::Plan>& plans, const std::string& plan_id) {
  const auto it = std::find_if(plans.begin(), plans.end(),
                               [&](const v1::Plan& plan) { return plan.plan_id() == plan_id; });
  return it == plans.end() ? nullptr : &*it;
}

bool SamePlacement(const v1::Placement& a, const v1::Placement& b) {
  return a.workflow_set() == b.workflow_set() && a.pool() == b.pool() && a.pinned() == b.pinned() &&
         a.removed() == b.removed();
}

absl::Status CheckPlanText(const std::string& field, const std::string& text) {
  if (text.size() <= kMaxPlanTextBytes) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kInvalidArgument, "TEXT_TOO_LONG",
      absl::StrCat("it has ", text.size(), " bytes, at most ", kMaxPlanTextBytes, " are kept"),
      {{"field", field}});
}

absl::Status CheckPlan(const v1::Plan& plan) {
  const auto bad = [](const char* reason, const std::string& message) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, reason, message);
  };
  if (plan.moves().empty()) return bad("NO_MOVES", "a plan has at least one move");
  if (plan.moves_size() > kMaxMoves)
    return bad("TOO_MANY_MOVES",
               absl::StrCat(plan.moves_size(), " moves; a plan has at most ", kMaxMoves));
  std::set<std::string> nodes;
  for (const v1::Move& move : plan.moves()) {
    if (!nodes.insert(move.node_id()).second)
      return bad("NODE_TWICE", absl::StrCat("node '", move.node_id(), "' is to move twice"));
  }
  if (plan.ByteSizeLong() > kMaxPlanBytes)
    return bad("PLAN_TOO_LARGE",
               absl::StrCat("a plan has at most ", kMaxPlanBytes, " bytes; split it into several"));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("plan_id", plan.plan_id()));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", plan.actor()));
  return CheckPlanText("reason", plan.reason());
}

absl::Status CheckLimits(const v1::PoolLimits& limits) {
  std::string wrong;
  if (limits.pool().empty()) wrong = "they name no pool";
  if (limits.min_instances() < 0 || limits.max_instances() < 0) wrong = "a bound is negative";
  if (limits.device_memory_bytes() < 0) wrong = "the device's memory is negative";
  if (limits.max_instances() > 0 && limits.max_instances() < limits.min_instances())
    wrong = absl::StrCat("the least, ", limits.min_instances(), ", is more than the most, ",
                         limits.max_instances());
  if (!wrong.empty())
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_LIMITS", wrong,
                           {{"field", "limits"}});
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("workflow_set", limits.workflow_set()));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("device", limits.device()));
  return CheckPlanText("pool", limits.pool());
}

}  // namespace onepiece::nodemanager
