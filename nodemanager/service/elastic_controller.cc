#include "nodemanager/service/elastic_controller.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {
namespace {

// True while the hold is active and has not expired.
bool IsHeld(const v1::Hold& hold, const Telemetry& telemetry) {
  return hold.active() && (hold.for_ms() == 0 || telemetry.ages->AgeOf(hold, telemetry.now) <
                                                     std::chrono::milliseconds(hold.for_ms()));
}

}  // namespace

ElasticController::ElasticController(const v1::ElasticityConfig& config)
    : decider_(std::make_shared<const Decider>(config)) {}

void ElasticController::Follow(const v1::ElasticityConfig& config, base::MonotonicTime now) {
  auto decider = std::make_shared<const Decider>(config);
  const base::MutexLock lock(mutex_);
  decider_ = std::move(decider);
  next_look_ = now + base::FromSeconds(decider_->config.interval_s());
}

void ElasticController::Restart(base::MonotonicTime now) {
  const base::MutexLock lock(mutex_);
  next_look_ = now + base::FromSeconds(decider_->config.interval_s());
  detail_ = "this NodeManager has just begun to lead";
}

bool ElasticController::IsTimeToLook(base::MonotonicTime now) {
  const base::MutexLock lock(mutex_);
  if (now < next_look_) return false;
  next_look_ = now + base::FromSeconds(decider_->config.interval_s());
  return true;
}

v1::Plan ElasticController::Start(const ElasticInput& input) {
  if (IsHeld(input.state().hold(), input.telemetry())) return {};
  v1::Plan plan;
  plan.set_reason(WhyNoPolicyPlan(input.state()));
  if (plan.reason().empty()) plan = Wanted(input);
  const base::MutexLock lock(mutex_);
  detail_ = plan.moves().empty() ? plan.reason() : "";
  return plan;
}

v1::Plan ElasticController::Wanted(const ElasticInput& input) const {
  const std::shared_ptr<const Decider> now = decider();
  return PlanOf(now->policy->Decide(MakePolicyView(input.state(), input.telemetry(), now->config)),
                input);
}

v1::Plan ElasticController::PlanOf(PolicyDecision decision, const ElasticInput& input) const {
  return nodemanager::PlanOf(input.state(), input.telemetry(), config(), std::move(decision));
}

absl::StatusOr<v1::Plan> ElasticController::Propose(const ElasticInput& input,
                                                    v1::Plan plan) const {
  return ProposedPlan(input.state(), input.telemetry(), std::move(plan));
}

v1::Elasticity ElasticController::Describe(const ElasticInput& input) const {
  v1::Elasticity elasticity = MakeElasticity(input.state(), input.telemetry(), config());
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
