#include "nodemanager/service/elastic_controller.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
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

std::ptrdiff_t RunningPolicyPlans(const StateMachine& state) {
  return std::ranges::count_if(state.plans(), [](const v1::Plan& plan) {
    return !HasEnded(plan) && plan.actor().starts_with("policy:");
  });
}

// True while the hold is active and has not expired.
bool IsHeld(const v1::Hold& hold, const Telemetry& telemetry) {
  return hold.active() && (hold.for_ms() == 0 || telemetry.ages->AgeOf(hold, telemetry.now) <
                                                     std::chrono::milliseconds(hold.for_ms()));
}

}  // namespace

ElasticController::ElasticController(v1::ElasticityConfig config)
    : config_(std::move(config)), policy_(MakePolicy(config_).value()) {}

void ElasticController::Restart(base::MonotonicTime now) {
  const base::MutexLock lock(mutex_);
  next_look_ = now + base::FromSeconds(config_.interval_s());
  detail_ = "this NodeManager has just begun to lead";
}

bool ElasticController::IsTimeToLook(base::MonotonicTime now) {
  const base::MutexLock lock(mutex_);
  if (now < next_look_) return false;
  next_look_ = now + base::FromSeconds(config_.interval_s());
  return true;
}

v1::Plan ElasticController::Start(const ElasticInput& input) {
  if (IsHeld(input.state().hold(), input.telemetry())) return {};
  v1::Plan plan;
  if (const auto running = RunningPolicyPlans(input.state()); running >= kMaxPolicyPlans) {
    plan.set_reason(absl::StrCat(running, " plans of the policy have not ended"));
  } else {
    plan = Wanted(input);
  }
  const base::MutexLock lock(mutex_);
  detail_ = plan.moves().empty() ? plan.reason() : "";
  return plan;
}

v1::Plan ElasticController::Wanted(const ElasticInput& input) const {
  return PlanOf(policy_->Decide(MakePolicyView(input.state(), input.telemetry(), config_)), input);
}

v1::Plan ElasticController::PlanOf(PolicyDecision decision, const ElasticInput& input) const {
  // The most urgent moves come first, so the others are left out.
  if (decision.moves.size() > kMaxMoves) decision.moves.resize(kMaxMoves);
  v1::Plan wanted;
  wanted.set_actor(absl::StrCat("policy:", config_.policy()));
  wanted.set_reason(Cut(decision.detail));
  // A refused move must not hold up the others, so it is left out and the rest is tried again.
  while (!decision.moves.empty()) {
    SetMoves(decision.moves, wanted);
    absl::StatusOr<v1::Plan> plan = Propose(input, wanted);
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
  wanted.set_base_revision(input.state().plan_revision());
  return wanted;
}

absl::StatusOr<v1::Plan> ElasticController::Propose(const ElasticInput& input,
                                                    v1::Plan plan) const {
  ONEPIECE_ASSIGN_OR_RETURN(v1::Plan complete, CompletePlan(input.state(), std::move(plan)));
  complete.set_state(v1::Plan::PROPOSED);
  complete.set_base_revision(input.state().plan_revision());
  *complete.mutable_prediction() = Predict(input.state(), input.telemetry(), complete);
  // The state keeps the plan with its prediction, so the size must be right with it too.
  ONEPIECE_RETURN_IF_ERROR(CheckPlan(complete));
  return complete;
}

v1::Elasticity ElasticController::Describe(const ElasticInput& input) const {
  v1::Elasticity elasticity = MakeElasticity(input.state(), input.telemetry(), config_);
  const v1::Hold& hold = input.state().hold();
  std::string detail;
  if (IsHeld(hold, input.telemetry())) {
    *elasticity.mutable_hold() = hold;
    detail =
        absl::StrCat("on hold by ", hold.actor(), hold.reason().empty() ? "" : ": ", hold.reason());
  } else {
    const base::MutexLock lock(mutex_);
    detail = detail_;
  }
  const bool both = !elasticity.policy_detail().empty() && !detail.empty();
  absl::StrAppend(elasticity.mutable_policy_detail(), both ? "; " : "", detail);
  return elasticity;
}

}  // namespace onepiece::nodemanager
