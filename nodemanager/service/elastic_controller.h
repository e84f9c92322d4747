// Decides when instances move: brings plans further, and asks the policy for new ones.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/service/elastic_input.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Changes nothing itself: the Controller proposes what Due() returns. What must survive a failover
/// is in the state.
///
/// Threading  Thread-safe; holds its lock only for its own members.
/// Blocking   What takes an ElasticInput takes its time in a large cluster.
class ElasticController {
 public:
  /// REQUIRES: `config` is complete (CompleteElasticity) and names a policy.
  explicit ElasticController(v1::ElasticityConfig config);

  /// A new leadership: the policy waits a whole interval, in which nodes report.
  void Restart(base::MonotonicTime now);
  /// The commands that are due: steps of plans under way, the reverts of unconfirmed ones.
  [[nodiscard]] std::vector<v1::Command> Due(const StateMachine& state,
                                             const Telemetry& telemetry) const {
    return NextSteps(state, telemetry, config_);
  }

  /// The policy shall look again; then, not before another interval_s has passed.
  bool IsTimeToLook(base::MonotonicTime now);
  /// What the policy does now, as a plan to start, or one without moves: Describe() tells from now
  /// on why. On hold it is not asked.
  v1::Plan Start(const ElasticInput& input);
  /// The same as a plan that is not kept, on hold, too: `reason` says why nothing moves.
  [[nodiscard]] v1::Plan Wanted(const ElasticInput& input) const;
  /// The decision as a plan. Moves that are refused are left out, and those beyond what a plan may
  /// have; without moves, `reason` says why.
  [[nodiscard]] v1::Plan PlanOf(PolicyDecision decision, const ElasticInput& input) const;
  /// The given moves, completed, with their predicted effect. Errors: those of CompletePlan and
  /// CheckPlan.
  [[nodiscard]] absl::StatusOr<v1::Plan> Propose(const ElasticInput& input, v1::Plan plan) const;
  [[nodiscard]] v1::Elasticity Describe(const ElasticInput& input) const;
  [[nodiscard]] const v1::ElasticityConfig& config() const { return config_; }

 private:
  const v1::ElasticityConfig config_;
  const std::unique_ptr<Policy> policy_;
  mutable std::mutex mutex_;
  base::MonotonicTime next_look_{};  // Of the policy. Guarded by mutex_.
  std::string detail_;               // Why the policy moved nothing, last time. Guarded by mutex_.
};

}  // namespace onepiece::nodemanager
