// The calls about plans, which move instances, and the poll that follows a plan.
#include <grpcpp/grpcpp.h>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/client/client_impl.h"
#include "onepiece/v1/elasticity.grpc.pb.h"

namespace onepiece::client {
namespace {

using ElasticityStub = v1::ElasticityService::Stub;

constexpr std::chrono::milliseconds kPlanPoll(300);

template <typename Request, typename Response>
absl::StatusOr<Response> Ask(ProxySet& managers,
                             grpc::Status (ElasticityStub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*),
                             const Request& request) {
  Response response;
  ONEPIECE_RETURN_IF_ERROR(managers.CallManager([&](const auto& channel, auto& context) {
    ElasticityStub stub(channel);
    return (stub.*method)(&context, request, &response);
  }));
  return response;
}

/// Adds a request id, so that a retried request has one effect.
template <typename Request>
Request WithId(Request request) {
  if (request.request_id().empty()) request.set_request_id(base::Uid::GenerateRandom().ToString());
  return request;
}

}  // namespace

absl::StatusOr<v1::Elasticity> Client::GetElasticity() {
  return Ask(impl_->proxies, &ElasticityStub::GetElasticity, v1::GetElasticityRequest());
}

absl::StatusOr<v1::Plan> Client::ProposePlan(const v1::ProposePlanRequest& request) {
  return Ask(impl_->proxies, &ElasticityStub::ProposePlan, request);
}

absl::StatusOr<v1::Plan> Client::ApplyPlan(v1::ApplyPlanRequest request) {
  return Ask(impl_->proxies, &ElasticityStub::ApplyPlan, WithId(std::move(request)));
}

absl::StatusOr<v1::Plan> Client::GetPlan(std::string_view plan_id) {
  v1::GetPlanRequest request;
  request.set_plan_id(std::string(plan_id));
  return Ask(impl_->proxies, &ElasticityStub::GetPlan, request);
}

absl::StatusOr<v1::ListPlansResponse> Client::ListPlans(const v1::ListPlansRequest& request) {
  return Ask(impl_->proxies, &ElasticityStub::ListPlans, request);
}

absl::StatusOr<v1::Plan> Client::ConfirmPlan(v1::DecidePlanRequest request) {
  return Ask(impl_->proxies, &ElasticityStub::ConfirmPlan, WithId(std::move(request)));
}

absl::StatusOr<v1::Plan> Client::UndoPlan(v1::DecidePlanRequest request) {
  return Ask(impl_->proxies, &ElasticityStub::UndoPlan, WithId(std::move(request)));
}

absl::StatusOr<v1::Hold> Client::SetHold(v1::SetHoldRequest request) {
  return Ask(impl_->proxies, &ElasticityStub::SetHold, WithId(std::move(request)));
}

absl::StatusOr<v1::PoolLimits> Client::SetPoolLimits(v1::SetPoolLimitsRequest request) {
  return Ask(impl_->proxies, &ElasticityStub::SetPoolLimits, WithId(std::move(request)));
}

absl::StatusOr<v1::ListAuditResponse> Client::ListAudit(const v1::ListAuditRequest& request) {
  return Ask(impl_->proxies, &ElasticityStub::ListAudit, request);
}

absl::StatusOr<v1::Plan> Client::AwaitPlan(std::string_view plan_id, const PlanObserver& observer,
                                           base::MonotonicTime deadline, std::stop_token stop) {
  for (;;) {
    ONEPIECE_ASSIGN_OR_RETURN(v1::Plan plan, GetPlan(plan_id));
    observer(plan);
    if (HasSettled(plan)) return plan;
    if (impl_->options.clock->Now() >= deadline) {
      return base::MakeError(
          absl::StatusCode::kDeadlineExceeded, "PLAN_DEADLINE",
          "plan " + plan.plan_id() + " is still " + v1::Plan::State_Name(plan.state()));
    }
    if (!impl_->proxies.Pause(kPlanPoll, deadline, stop)) {
      return base::MakeError(
          absl::StatusCode::kCancelled, "INTERRUPTED",
          "interrupted; plan " + plan.plan_id() + " goes on (`onepiece rebalance show`)");
    }
  }
}

bool HasSettled(const v1::Plan& plan) {
  return plan.state() != v1::Plan::RUNNING && plan.state() != v1::Plan::REVERTING;
}

}  // namespace onepiece::client
