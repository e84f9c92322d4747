// The elasticity of the fake cluster: plans that begin, are kept and taken back when a test says
// so.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::testing {

/// A value; whoever shares it guards it. Refusals have the NodeManager's codes and reasons.
struct FakePlans {
  v1::Elasticity elasticity;
  v1::ListPlansResponse plans;  ///< Newest first.
  v1::Plan policy_plan;         ///< What Propose answers without moves.
  v1::Prediction prediction;    ///< Of every plan that is proposed or begun.
  std::vector<v1::ApplyPlanRequest> applied;
  std::vector<v1::DecidePlanRequest> decided;
  bool lose_answers = false;

  absl::StatusOr<v1::Plan> Propose(const v1::ProposePlanRequest& request,
                                   const v1::Cluster& cluster) const;
  absl::StatusOr<v1::Plan> Apply(const v1::ApplyPlanRequest& request, const v1::Cluster& cluster,
                                 std::int64_t now_ms);
  absl::StatusOr<v1::Plan> Get(const std::string& plan_id) const;
  absl::StatusOr<v1::Plan> Confirm(const v1::DecidePlanRequest& request);
  absl::StatusOr<v1::Plan> Undo(const v1::DecidePlanRequest& request, const v1::Cluster& cluster,
                                std::int64_t now_ms);
  v1::Hold SetHold(const v1::SetHoldRequest& request, std::int64_t now_ms);
  v1::PoolLimits SetLimits(const v1::PoolLimits& limits);

  /// A plan that has begun.
  void Add(const v1::Plan& plan);
  /// All its moves come to their end. Returns the nodes that have another placement by that.
  std::vector<v1::Node> Finish(const std::string& plan_id, const v1::Cluster& cluster,
                               std::int64_t now_ms);

 private:
  v1::Plan* Find(const std::string& plan_id);
  /// elasticity.plans are those of `plans` that have not ended.
  void TellUnderWay();
  std::string Begin(v1::Plan plan, const std::string& request_id, std::int64_t now_ms);
  absl::StatusOr<v1::Plan> Answer(const std::string& plan_id) const;
  absl::StatusOr<v1::Plan> Complete(v1::Plan plan, const v1::Cluster& cluster) const;

  std::map<std::string, std::string> plan_of_request_;
};

}  // namespace onepiece::testing
