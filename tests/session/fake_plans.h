// The elasticity of the fake cluster. Plans begin, are kept and are reverted when a test says so.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::testing {

/// Refusals have the NodeManager's codes and reasons.
///
/// Threading: a value that needs external synchronisation.
struct FakePlans {
  v1::Elasticity elasticity;
  v1::ListPlansResponse plans;  ///< Newest first.
  v1::Plan policy_plan;         ///< The answer of Propose() to a request without moves.
  v1::Prediction prediction;    ///< For every plan that is proposed or begun.
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

  /// Adds a plan that has begun.
  void Add(const v1::Plan& plan);
  /// Ends all moves of the plan. Returns the nodes whose placement that changes.
  std::vector<v1::Node> Finish(const std::string& plan_id, const v1::Cluster& cluster,
                               std::int64_t now_ms);

 private:
  v1::Plan* Find(const std::string& plan_id);
  /// Sets elasticity.plans to those of `plans` that have not ended.
  void TellUnderWay();
  std::string Begin(v1::Plan plan, const std::string& request_id, std::int64_t now_ms);
  absl::StatusOr<v1::Plan> Answer(const std::string& plan_id) const;
  absl::StatusOr<v1::Plan> Complete(v1::Plan plan, const v1::Cluster& cluster) const;

  std::map<std::string, std::string> plan_of_request_;
};

}  // namespace onepiece::testing
