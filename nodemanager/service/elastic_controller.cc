#include "nodemanager/service/elastic_controller.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

base::Duration Interval(const v1::ElasticityConfig& config) {
  return std::chrono::duration_cast<base::Duration>(
      std::chrono::duration<double>(config.interval_s()));
}

}  // namespace

bool IsHeld(const v1::Hold& hold, base::WallTime now) {
  return hold.active() && (hold.until_unix_ms() == 0 || base::ToUnixMs(now) < hold.until_unix_ms());
}

ElasticController::ElasticController(v1::ElasticityConfig config)
    : config_(std::move(config)), policy_(MakePolicy(config_).value()) {}

void ElasticController::Restart(base::MonotonicTime now) {
  const std::lock_guard lock(mutex_);
  next_look_ = now + Interval(config_);
  detail_ = "this NodeManager has just begun to lead";
}

std::vector<v1::Command> ElasticController::Due(const StateMachine& state,
                                                const Telemetry& telemetry) {
  std::vector<v1::Command> commands = NextSteps(state, telemetry, config_);
  {
    const std::lock_guard lock(mutex_);
    if (telemetry.now < next_look_) return commands;
    next_look_ = telemetry.now + Interval(config_);
  }
  if (IsHeld(state.hold(), telemetry.wall_now)) return commands;
  v1::Plan plan = Propose(state, telemetry);
  const std::lock_guard lock(mutex_);
  detail_ = plan.moves().empty() ? plan.reason() : "";
  if (!plan.moves().empty()) *commands.emplace_back().mutable_start_plan()->mutable_plan() = plan;
  return commands;
}

v1::Plan ElasticController::Propose(const StateMachine& state, const Telemetry& telemetry) const {
  const PolicyDecision decision = policy_->Decide(MakePolicyView(state, telemetry, config_));
  v1::Plan wanted;
  wanted.set_actor(absl::StrCat("policy:", config_.policy()));
  std::string reason;
  for (const WantedMove& move : decision.moves) {
    v1::Move& made = *wanted.add_moves();
    made.set_node_id(move.node_id);
    made.mutable_to()->set_workflow_set(move.to_set);
    made.mutable_to()->set_pool(move.to_pool);
    absl::StrAppend(&reason, reason.empty() ? "" : "; ", move.reason);
  }
  wanted.set_reason(
      base::ToUtf8(decision.moves.empty() ? decision.detail : reason, kMaxPlanTextBytes));
  wanted.set_state(v1::Plan::PROPOSED);
  wanted.set_base_revision(state.plan_revision());
  if (decision.moves.empty()) return wanted;
  absl::StatusOr<v1::Plan> plan = Propose(state, telemetry, wanted);
  if (plan.ok()) return *std::move(plan);
  wanted.clear_moves();
  wanted.set_reason(absl::StrCat("its plan is refused: ", base::Message(plan.status())));
  return wanted;
}

absl::StatusOr<v1::Plan> ElasticController::Propose(const StateMachine& state,
                                                    const Telemetry& telemetry,
                                                    v1::Plan plan) const {
  ONEPIECE_ASSIGN_OR_RETURN(v1::Plan complete, CompletePlan(state, std::move(plan)));
  complete.set_state(v1::Plan::PROPOSED);
  complete.set_base_revision(state.plan_revision());
  *complete.mutable_prediction() = Predict(state, telemetry, complete);
  return complete;
}

v1::Elasticity ElasticController::Describe(const StateMachine& state,
                                           const Telemetry& telemetry) const {
  v1::Elasticity elasticity = MakeElasticity(state, telemetry, config_);
  if (!IsHeld(elasticity.hold(), telemetry.wall_now)) elasticity.mutable_hold()->Clear();
  const std::lock_guard lock(mutex_);
  elasticity.set_policy_detail(elasticity.hold().active() ? "on hold" : detail_);
  return elasticity;
}

}  // namespace onepiece::nodemanager
