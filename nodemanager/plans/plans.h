// Plans: how an instance gets from one place to another without losing a job (docs/elasticity.md).
// Pure functions over the replicated state; the controller proposes what they return.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "nodemanager/load/load_window.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::nodemanager {

/// What the state does not say of nodes. What reads loads (all but NextSteps) needs `window`.
struct Telemetry {
  const LoadWindow* window = nullptr;
  /// Routing epoch that the node goes by, of its present incarnation; 0: not known.
  std::function<std::uint64_t(const std::string& node_id)> routing_epoch;
  base::MonotonicTime now;
  base::WallTime wall_now;
  /// Since when this replica leads, of the clock of `now`.
  base::MonotonicTime leading_since;
};

/// How long ago the state's stamp was made; never negative. Stamps are of the wall clock of who led
/// then: one that lies ahead of ours counts from the beginning of this leadership.
base::Duration AgeOf(const Telemetry& telemetry, std::int64_t unix_ms);

/// What a policy looks at. `config` is complete.
PolicyView MakePolicyView(const StateMachine& state, const Telemetry& telemetry,
                          const v1::ElasticityConfig& config);

/// Fills in `from`, incarnation and phases of the moves of a new plan and checks it against the
/// state. Pools may be named by id or, where only one matches, by stage. Errors: NOT_FOUND
/// (NODE_UNKNOWN, POOL_UNKNOWN), INVALID_ARGUMENT (POOL_AMBIGUOUS, NO_MOVES, NODE_TWICE),
/// FAILED_PRECONDITION (NODE_MOVING, BELOW_MINIMUM, ABOVE_MAXIMUM, NODE_PINNED to another stage,
/// NODE_DEAD, NOTHING_TO_DO).
absl::StatusOr<v1::Plan> CompletePlan(const StateMachine& state, v1::Plan plan);

/// What the plan would do to utilisation, waiting and throughput.
v1::Prediction Predict(const StateMachine& state, const Telemetry& telemetry, const v1::Plan& plan);

/// The inverse of a plan that is DONE. Errors: FAILED_PRECONDITION (PLAN_STATE, CHANGED_SINCE,
/// ALREADY_UNDONE).
absl::StatusOr<v1::Plan> InversePlan(const StateMachine& state, const v1::Plan& plan);

/// The commands that bring plans under way further, as far as nodes have come: PENDING → DRAINING;
/// DRAINING → SWITCHING when every sender goes by a table without it and it says that it is
/// drained, or when it has died; SWITCHING → DONE when it serves (or is idle); back when that takes
/// longer than `config.move_timeout_s` or its model does not load; the automatic revert at
/// confirm_by. Empty: nothing to do now.
std::vector<v1::Command> NextSteps(const StateMachine& state, const Telemetry& telemetry,
                                   const v1::ElasticityConfig& config);

/// What proxies of that workflow set admit by; `proxy` gets its share. Also for nodes of no set.
v1::Capacity MakeCapacity(const StateMachine& state, const Telemetry& telemetry,
                          const std::string& workflow_set, const std::string& proxy);

/// Pools with their load, and plans under way, for people. Without the hold and why the policy
/// moves nothing: the ElasticController knows these.
v1::Elasticity MakeElasticity(const StateMachine& state, const Telemetry& telemetry,
                              const v1::ElasticityConfig& config);

/// What an alive instance is about.
v1::Activity ActivityOf(const v1::NodeRecord& record, const v1::NodeLoad* load);

}  // namespace onepiece::nodemanager
