// Serves ElasticityService over gRPC.
#pragma once

#include <string>

#include "nodemanager/service/controller.h"
#include "onepiece/v1/elasticity.grpc.pb.h"

namespace onepiece::nodemanager {

/// What operators ask about plans, holds and limits. A change that is asked for twice under one
/// request id is made once, because a plan's id follows from the request id.
///
/// Ownership: borrows the controller, which must outlive it.
/// Threading: thread-safe.
/// Blocking: changes wait for the log.
/// Errors: every error carries a reason (google.rpc.ErrorInfo). A replica that does not lead
/// answers GetPlan(), ListPlans() and ListAudit() after it has caught up with the leader, and
/// refuses every other call with UNAVAILABLE (NOT_LEADER).
class ElasticityService final : public v1::ElasticityService::Service {
 public:
  /// `read_only` means what it means in NodeConfig. The door knows who calls; null: the
  /// NodeManager is insecure.
  explicit ElasticityService(Controller& controller, bool read_only = false,
                             const rpc::Door* door = nullptr)
      : controller_(controller), read_only_(read_only), door_(door) {}

  grpc::Status GetElasticity(grpc::ServerContext* context, const v1::GetElasticityRequest* request,
                             v1::Elasticity* response) override;
  grpc::Status ProposePlan(grpc::ServerContext* context, const v1::ProposePlanRequest* request,
                           v1::Plan* response) override;
  grpc::Status ApplyPlan(grpc::ServerContext* context, const v1::ApplyPlanRequest* request,
                         v1::Plan* response) override;
  grpc::Status GetPlan(grpc::ServerContext* context, const v1::GetPlanRequest* request,
                       v1::Plan* response) override;
  grpc::Status ListPlans(grpc::ServerContext* context, const v1::ListPlansRequest* request,
                         v1::ListPlansResponse* response) override;
  grpc::Status ConfirmPlan(grpc::ServerContext* context, const v1::DecidePlanRequest* request,
                           v1::Plan* response) override;
  grpc::Status UndoPlan(grpc::ServerContext* context, const v1::DecidePlanRequest* request,
                        v1::Plan* response) override;
  grpc::Status SetHold(grpc::ServerContext* context, const v1::SetHoldRequest* request,
                       v1::Hold* response) override;
  grpc::Status SetPoolLimits(grpc::ServerContext* context, const v1::SetPoolLimitsRequest* request,
                             v1::PoolLimits* response) override;
  grpc::Status ListAudit(grpc::ServerContext* context, const v1::ListAuditRequest* request,
                         v1::ListAuditResponse* response) override;

 private:
  absl::StatusOr<v1::Plan> FindPlan(const std::string& plan_id);
  // A command that the caller makes. The functions below get it, and fill it in.
  [[nodiscard]] v1::Command CommandOf(const grpc::ServerContext* context) const;
  absl::StatusOr<v1::Plan> Apply(v1::Command command, const v1::ApplyPlanRequest& request);
  absl::StatusOr<v1::Plan> Undo(v1::Command command, const v1::DecidePlanRequest& request);
  absl::StatusOr<v1::Plan> Decide(v1::Command command, const v1::DecidePlanRequest& request,
                                  v1::DecidePlan::Decision decision);
  // Proposes the plan. If there is a plan with this id already, an earlier attempt of the same
  // request made it, and it is the answer.
  absl::StatusOr<v1::Plan> Start(v1::Command command, v1::Plan plan);
  absl::StatusOr<v1::PoolLimits> Limit(v1::Command command,
                                       const v1::SetPoolLimitsRequest& request);

  Controller& controller_;
  const bool read_only_;
  const rpc::Door* const door_;
};

}  // namespace onepiece::nodemanager
