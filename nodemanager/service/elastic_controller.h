// Decides when instances move: takes plans further, and asks the policy for new ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/policy/policy.h"
#include "nodemanager/service/elastic_input.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// It changes nothing itself: the Controller proposes what Due() and Start() return. What must
/// survive a failover is in the state.
///
/// Threading: thread-safe. It holds its lock only for its own members.
/// Blocking: calls that take an ElasticInput compute for a while in a large cluster.
class ElasticController {
 public:
  /// REQUIRES: `config` is complete (CompleteElasticity) and names a policy that MakePolicy()
  /// knows.
  explicit ElasticController(const v1::ElasticityConfig& config);

  /// Begins a new leadership. The policy waits for a whole interval, in which nodes report.
  void Restart(base::MonotonicTime now);
  /// Goes by another configuration from now on. The policy is made anew, and decides after one of
  /// its intervals.
  /// REQUIRES: as for the constructor.
  void Follow(const v1::ElasticityConfig& config, base::MonotonicTime now);

  /// Returns true when the policy shall decide now, and then not again before interval_s has
  /// passed.
  bool IsTimeToLook(base::MonotonicTime now);
  /// Asks the policy, and returns its decision as a plan to start. A plan without moves says in
  /// `reason` why nothing moves, and Describe() says it from now on. On hold the policy is not
  /// asked.
  v1::Plan Start(const ElasticInput& input);
  /// Asks the policy for a dry run, also on hold. Nothing is kept. If nothing moves, `reason` says
  /// why.
  [[nodiscard]] v1::Plan Wanted(const ElasticInput& input) const;
  /// Turns the decision into one plan. It leaves out moves that are refused and moves beyond what a
  /// plan may have. If no move is left, `reason` says why.
  [[nodiscard]] v1::Plan PlanOf(PolicyDecision decision, const ElasticInput& input) const;
  /// Completes the given moves, and predicts their effect.
  /// Errors: those of CompletePlan() and CheckPlan().
  [[nodiscard]] absl::StatusOr<v1::Plan> Propose(const ElasticInput& input, v1::Plan plan) const;
  /// Pools, plans and hold for people, and why the policy moved nothing.
  [[nodiscard]] v1::Elasticity Describe(const ElasticInput& input) const;
  [[nodiscard]] v1::ElasticityConfig config() const { return decider()->config; }

 private:
  // Replaced as a whole, so that what is computed with it need not hold the lock.
  struct Decider {
    explicit Decider(const v1::ElasticityConfig& given)
        : config(given), policy(MakePolicy(config).value()) {}
    const v1::ElasticityConfig config;
    const std::unique_ptr<Policy> policy;
  };
  [[nodiscard]] std::shared_ptr<const Decider> decider() const {
    const base::MutexLock lock(mutex_);
    return decider_;
  }

  mutable base::Mutex mutex_;
  std::shared_ptr<const Decider> decider_ ABSL_GUARDED_BY(mutex_);
  base::MonotonicTime next_look_ ABSL_GUARDED_BY(mutex_){};  // When the policy decides next.
  std::string detail_ ABSL_GUARDED_BY(mutex_);  // Why the policy moved nothing, last time.
};

}  // namespace onepiece::nodemanager
