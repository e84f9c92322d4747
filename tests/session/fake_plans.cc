#include "tests/session/fake_plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::testing {

absl::StatusOr<v1::Plan> FakePlans::Propose(const v1::ProposePlanRequest& request,
                                            const v1::Cluster& cluster) const {
  v1::Plan plan;
  if (request.moves().empty()) {
    plan = policy_plan;
  } else {
    *plan.mutable_moves() = request.moves();
  }
  return Complete(std::move(plan), cluster);
}

absl::StatusOr<v1::Plan> FakePlans::Apply(const v1::ApplyPlanRequest& request,
                                          const v1::Cluster& cluster, std::int64_t now_ms) {
  applied.push_back(request);
  if (const auto made = plan_of_request_.find(request.request_id()); made != plan_of_request_.end())
    return Answer(made->second);
  if (request.base_revision() != 0 && request.base_revision() != elasticity.plan_revision()) {
    return base::MakeError(absl::StatusCode::kAborted, "STALE_REVISION",
                           absl::StrFormat("made for plan revision %d, now it is %d",
                                           request.base_revision(), elasticity.plan_revision()));
  }
  v1::Plan plan;
  *plan.mutable_moves() = request.moves();
  ONEPIECE_ASSIGN_OR_RETURN(plan, Complete(std::move(plan), cluster));
  plan.set_actor(request.actor());
  plan.set_reason(request.reason());
  if (request.confirm_within_s() > 0)
    plan.set_confirm_by_unix_ms(now_ms + request.confirm_within_s() * 1000LL);
  return Answer(Begin(std::move(plan), request.request_id(), now_ms));
}

absl::StatusOr<v1::Plan> FakePlans::Get(const std::string& plan_id) const {
  for (const v1::Plan& plan : plans.plans()) {
    if (plan.plan_id() == plan_id) return plan;
  }
  return base::MakeError(absl::StatusCode::kNotFound, "PLAN_UNKNOWN",
                         "there is no plan '" + plan_id + "'");
}

absl::StatusOr<v1::Plan> FakePlans::Confirm(const v1::DecidePlanRequest& request) {
  decided.push_back(request);
  if (v1::Plan* plan = Find(request.plan_id()); plan != nullptr) {
    plan->clear_confirm_by_unix_ms();
    if (plan->state() == v1::Plan::UNCONFIRMED) plan->set_state(v1::Plan::DONE);
    TellUnderWay();
  }
  return Answer(request.plan_id());
}

absl::StatusOr<v1::Plan> FakePlans::Undo(const v1::DecidePlanRequest& request,
                                         const v1::Cluster& cluster, std::int64_t now_ms) {
  decided.push_back(request);
  v1::Plan* const plan = Find(request.plan_id());
  if (plan == nullptr) return Answer(request.plan_id());
  if (plan->state() != v1::Plan::DONE) {
    plan->set_state(v1::Plan::REVERTING);
    for (v1::Move& move : *plan->mutable_moves()) move.set_phase(v1::Move::REVERTING);
    TellUnderWay();
    return Answer(plan->plan_id());
  }
  v1::Plan inverse;
  for (const v1::Move& move : plan->moves()) {
    v1::Move& back = *inverse.add_moves();
    back.set_node_id(move.node_id());
    *back.mutable_to() = move.from();
  }
  ONEPIECE_ASSIGN_OR_RETURN(inverse, Complete(std::move(inverse), cluster));
  inverse.set_undo_of(plan->plan_id());
  inverse.set_actor(request.actor());
  inverse.set_reason(request.reason());
  const std::string made = Begin(std::move(inverse), request.request_id(), now_ms);
  Find(request.plan_id())->set_undone_by(made);
  return Answer(made);
}

v1::Hold FakePlans::SetHold(const v1::SetHoldRequest& request, std::int64_t now_ms) {
  v1::Hold hold;
  hold.set_active(request.active());
  hold.set_actor(request.actor());
  hold.set_reason(request.reason());
  if (request.active() && request.for_s() > 0)
    hold.set_until_unix_ms(now_ms + request.for_s() * 1000LL);
  *elasticity.mutable_hold() = hold;
  return hold;
}

v1::PoolLimits FakePlans::SetLimits(const v1::PoolLimits& limits) {
  for (v1::PoolStatus& pool : *elasticity.mutable_pools()) {
    if (pool.pool() != limits.pool() || pool.workflow_set() != limits.workflow_set()) continue;
    pool.set_min_instances(limits.min_instances());
    pool.set_max_instances(limits.max_instances());
  }
  return limits;
}

void FakePlans::Add(const v1::Plan& plan) {
  v1::ListPlansResponse all;
  *all.add_plans() = plan;
  all.MergeFrom(plans);
  plans = all;
  elasticity.set_plan_revision(elasticity.plan_revision() + 1);
  TellUnderWay();
}

std::vector<v1::Node> FakePlans::Finish(const std::string& plan_id, const v1::Cluster& cluster,
                                        std::int64_t now_ms) {
  v1::Plan* const plan = Find(plan_id);
  ONEPIECE_CHECK(plan != nullptr);
  const bool back = plan->state() == v1::Plan::REVERTING;
  std::vector<v1::Node> moved;
  for (v1::Move& move : *plan->mutable_moves()) {
    move.set_phase(back ? v1::Move::REVERTED : v1::Move::DONE);
    for (const v1::Node& node : cluster.nodes()) {
      if (node.node_id() == move.node_id())
        *moved.emplace_back(node).mutable_placement() = back ? move.from() : move.to();
    }
  }
  const bool waits = !back && plan->confirm_by_unix_ms() != 0;
  plan->set_state(back ? v1::Plan::REVERTED : waits ? v1::Plan::UNCONFIRMED : v1::Plan::DONE);
  if (!waits) plan->set_end_unix_ms(now_ms);
  elasticity.set_plan_revision(elasticity.plan_revision() + 1);
  TellUnderWay();
  return moved;
}

v1::Plan* FakePlans::Find(const std::string& plan_id) {
  for (v1::Plan& plan : *plans.mutable_plans()) {
    if (plan.plan_id() == plan_id) return &plan;
  }
  return nullptr;
}

void FakePlans::TellUnderWay() {
  elasticity.clear_plans();
  for (const v1::Plan& plan : plans.plans()) {
    if (plan.state() == v1::Plan::RUNNING || plan.state() == v1::Plan::UNCONFIRMED ||
        plan.state() == v1::Plan::REVERTING)
      *elasticity.add_plans() = plan;
  }
}

std::string FakePlans::Begin(v1::Plan plan, const std::string& request_id, std::int64_t now_ms) {
  plan.set_plan_id("plan-" + std::to_string(plans.plans_size() + 1));
  plan.set_state(v1::Plan::RUNNING);
  plan.set_create_unix_ms(now_ms);
  plan_of_request_[request_id] = plan.plan_id();
  Add(plan);
  return plan.plan_id();
}

absl::StatusOr<v1::Plan> FakePlans::Answer(const std::string& plan_id) const {
  // The client library does not retry after this code.
  if (lose_answers) return base::MakeError(absl::StatusCode::kUnknown, "LOST", "no answer came");
  return Get(plan_id);
}

absl::StatusOr<v1::Plan> FakePlans::Complete(v1::Plan plan, const v1::Cluster& cluster) const {
  plan.set_state(v1::Plan::PROPOSED);
  plan.set_base_revision(elasticity.plan_revision());
  *plan.mutable_prediction() = prediction;
  for (v1::Move& move : *plan.mutable_moves()) {
    const std::string& id = move.node_id();
    const auto node = std::ranges::find(cluster.nodes(), id, &v1::Node::node_id);
    if (node == cluster.nodes().end())
      return base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN", "no node '" + id + "'");
    for (const v1::Plan& other : elasticity.plans()) {
      if (std::ranges::find(other.moves(), id, &v1::Move::node_id) != other.moves().end()) {
        return base::MakeError(absl::StatusCode::kFailedPrecondition, "NODE_MOVING",
                               "node '" + id + "': it is part of a plan that has not ended");
      }
    }
    *move.mutable_from() = node->placement();
    move.set_incarnation(node->incarnation());
    move.set_phase(v1::Move::PENDING);
  }
  return plan;
}

}  // namespace onepiece::testing
