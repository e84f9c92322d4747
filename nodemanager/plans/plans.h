// Plans: how an instance gets from one place to another without losing a job (docs/elasticity.md).
// All functions are pure functions of the replicated state and of telemetry, and the controller
// proposes what they return.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "nodemanager/load/load_window.h"
#include "nodemanager/plans/stamp_ages.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::nodemanager {

/// What the state does not say about nodes. All functions but NextSteps() need `window`, and all
/// but MakeCapacity() need `ages`.
///
/// Ownership: borrows `window` and `ages`.
struct Telemetry {
  const LoadWindow* window = nullptr;
  /// The epoch of the routing table by which the node's present incarnation sends, or 0 when
  /// unknown.
  std::function<std::uint64_t(const std::string& node_id)> routing_epoch;
  base::MonotonicTime now;
  base::WallTime wall_now;  ///< For showing alone.
  /// How old plans, phases and the hold are.
  const StampAges* ages = nullptr;
};

/// What a policy looks at.
/// REQUIRES: `config` is complete.
PolicyView MakePolicyView(const StateMachine& state, const Telemetry& telemetry,
                          const v1::ElasticityConfig& config);

/// Fills `from`, incarnation and phase into the moves of a new plan, and checks the plan against
/// the state. A pool may be named by its id, or by its stage where only one pool matches.
///
/// Errors: NOT_FOUND (NODE_UNKNOWN, POOL_UNKNOWN, WORKFLOW_SET_UNKNOWN), INVALID_ARGUMENT
/// (POOL_AMBIGUOUS, BAD_PLACEMENT, and those of CheckPlan()), FAILED_PRECONDITION (NODE_MOVING,
/// BELOW_MINIMUM, ABOVE_MAXIMUM, NODE_PINNED to another stage, NO_DEVICE, NODE_DEAD,
/// NOT_AN_INSTANCE, NOTHING_TO_DO).
absl::StatusOr<v1::Plan> CompletePlan(const StateMachine& state, v1::Plan plan);

/// Says why the policy shall begin no plan now, or nothing.
std::string WhyNoPolicyPlan(const StateMachine& state);
/// Turns the decision of `config`'s policy into one plan. It leaves out moves that are refused and
/// moves beyond what a plan may have. If no move is left, `reason` says why.
v1::Plan PlanOf(const StateMachine& state, const Telemetry& telemetry,
                const v1::ElasticityConfig& config, PolicyDecision decision);
/// Completes the given moves, and predicts their effect.
/// Errors: those of CompletePlan() and CheckPlan().
absl::StatusOr<v1::Plan> ProposedPlan(const StateMachine& state, const Telemetry& telemetry,
                                      v1::Plan plan);

/// Predicts what the plan would do to utilisation, waiting and throughput.
v1::Prediction Predict(const StateMachine& state, const Telemetry& telemetry, const v1::Plan& plan);

/// Makes the inverse of a plan that is DONE.
/// Errors: FAILED_PRECONDITION (PLAN_STATE, CHANGED_SINCE, ALREADY_UNDONE), and those of
/// CompletePlan().
absl::StatusOr<v1::Plan> InversePlan(const StateMachine& state, const v1::Plan& plan);

/// Returns the commands that take the plans under way as far as their nodes have come. It is empty
/// when there is nothing to do now.
/// - PENDING → DRAINING when it is the move's turn, or SWITCHING when the instance need not drain.
/// - DRAINING → SWITCHING when every sender goes by a table without the instance and the instance
///   says that it is drained, or when it has died.
/// - SWITCHING → DONE when the instance serves, or is idle.
/// - A move is in trouble when it takes longer than `config.move_timeout_s`, its model does not
///   load, or its pool is gone. Then the plan is reverted, or, if a policy made it, that move alone
///   (→ REVERTING, or REVERTED when it has not begun).
/// - A plan that nobody has confirmed within confirm_within_ms is reverted.
std::vector<v1::Command> NextSteps(const StateMachine& state, const Telemetry& telemetry,
                                   const v1::ElasticityConfig& config);

/// What the proxies of that workflow set admit by, with the share of `proxy`. `proxy` may be a node
/// of any role.
v1::Capacity MakeCapacity(const StateMachine& state, const Telemetry& telemetry,
                          const std::string& workflow_set, const std::string& proxy);

/// The pools with their load, and the plans under way, for people. policy_detail names the pools
/// that nobody can serve for lack of a device. The ElasticController adds the hold and why the
/// policy moves nothing.
v1::Elasticity MakeElasticity(const StateMachine& state, const Telemetry& telemetry,
                              const v1::ElasticityConfig& config);

/// What a live instance is about. `load` is its last report, or null.
v1::Activity ActivityOf(const v1::NodeRecord& record, const v1::NodeLoad* load);

}  // namespace onepiece::nodemanager
