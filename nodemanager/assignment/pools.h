// The pools of a workflow set: which stages of all workflows share instances, and how many
// instances each pool may have.
#pragma once

#include <string>
#include <vector>

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::nodemanager {

/// After this many failures to load a pool's model the assigner spends no more instances on it. The
/// policy's kEnoughFailures is the same number.
inline constexpr int kEnoughFailedLoads = 2;

struct Pool {
  std::string id;                    ///< workflow::PoolIdOf().
  v1::StageSpec spec;                ///< From the first workflow that names it, without `after`.
  std::vector<std::string> app_ids;  ///< In order.
  std::vector<std::string> models;   ///< One for each application, in their order.
  /// The highest minimum that a workflow or the set's limits ask for. At least 1.
  int min_instances = 1;
  /// The maximum in the set's limits, or else the lowest one of the workflows. 0 means no maximum.
  /// It is never below min_instances: where the two contradict each other, the minimum holds.
  int max_instances = 0;
};

/// The pools in workflow order. Every set has the same pools, with limits of its own.
std::vector<Pool> PoolsOf(const StateMachine& state, const std::string& workflow_set);

/// Returns null when the workflows have no such pool, or have it no longer.
const Pool* FindPool(const std::vector<Pool>& pools, const std::string& id);

/// The pool of the instance's assignment, or an empty string when the instance is idle.
std::string AssignedPool(const v1::Node& node);

/// False when the node's own configuration pins it to another stage.
inline bool MayServe(const v1::Node& node, const Pool& pool) {
  return node.pinned_stage().empty() || node.pinned_stage() == pool.spec.stage();
}

}  // namespace onepiece::nodemanager
