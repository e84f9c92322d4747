// Plans that a policy wants.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

std::string Cut(const std::string& text) { return base::ToUtf8(text, kMaxPlanTextBytes); }

void SetMoves(const std::vector<WantedMove>& moves, v1::Plan& plan) {
  plan.clear_moves();
  std::string reason;
  for (const WantedMove& move : moves) {
    v1::Move& made = *plan.add_moves();
    made.set_node_id(move.node_id);
    made.mutable_to()->set_workflow_set(move.to_set);
    made.mutable_to()->set_pool(move.to_pool);
    absl::StrAppend(&reason, reason.empty() ? "" : "; ", move.reason);
  }
  plan.set_reason(Cut(reason));
}

// The policy leaves room for plans of people among those that may run.
constexpr auto kMaxPolicyPlans = static_cast<std::ptrdiff_t>(StateMachine::kMaxRunningPlans / 2);

}  // namespace

std::string WhyNoPolicyPlan(const StateMachine& state) {
  const auto running = std::ranges::count_if(state.plans(), [](const v1::Plan& plan) {
    return !HasEnded(plan) && plan.actor().starts_with("policy:");
  });
  if (running < kMaxPolicyPlans) return "";
  return absl::StrCat(running, " plans of the policy have not ended");
}

v1::Plan PlanOf(const StateMachine& state, const Telemetry& telemetry,
                const v1::ElasticityConfig& config, PolicyDecision decision) {
  // The most urgent moves come first, so the others are left out.
  if (decision.moves.size() > kMaxMoves) decision.moves.resize(kMaxMoves);
  v1::Plan wanted;
  wanted.set_actor(absl::StrCat("policy:", config.policy()));
  wanted.set_reason(Cut(decision.detail));
  // A refused move must not hold up the others, so it is left out and the rest is tried again.
  while (!decision.moves.empty()) {
    SetMoves(decision.moves, wanted);
    absl::StatusOr<v1::Plan> plan = ProposedPlan(state, telemetry, wanted);
    if (plan.ok()) return *std::move(plan);
    wanted.set_reason(Cut(absl::StrCat("its plan is refused: ", base::Message(plan.status()))));
    const std::string refused = base::GetReason(plan.status()).metadata["node_id"];
    const auto left_out = std::erase_if(
        decision.moves, [&](const WantedMove& move) { return move.node_id == refused; });
    // A refusal of the plan as a whole names no node. The loop must still end.
    if (left_out == 0) decision.moves.pop_back();
  }
  wanted.clear_moves();
  wanted.set_state(v1::Plan::PROPOSED);
  wanted.set_base_revision(state.plan_revision());
  return wanted;
}

absl::StatusOr<v1::Plan> ProposedPlan(const StateMachine& state, const Telemetry& telemetry,
                                      v1::Plan plan) {
  ONEPIECE_ASSIGN_OR_RETURN(v1::Plan complete, CompletePlan(state, std::move(plan)));
  complete.set_state(v1::Plan::PROPOSED);
  complete.set_base_revision(state.plan_revision());
  *complete.mutable_prediction() = Predict(state, telemetry, complete);
  // The state keeps the plan with its prediction, so the size must be right with it too.
  ONEPIECE_RETURN_IF_ERROR(CheckPlan(complete));
  return complete;
}

}  // namespace onepiece::nodemanager
