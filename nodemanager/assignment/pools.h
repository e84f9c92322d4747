// Pools of a workflow set: stages of all workflows that share instances, and how many it may have.
#pragma once

#include <string>
#include <vector>

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::nodemanager {

struct Pool {
  std::string id;                    ///< workflow::PoolIdOf().
  v1::StageSpec spec;                ///< Of the first workflow that names it, without `after`.
  std::vector<std::string> app_ids;  ///< In order.
  std::vector<std::string> models;   ///< Of each application.
  /// The most that a workflow or the set's limits ask for; at least 1.
  int min_instances = 1;
  /// The set's limit, or else the smallest of the workflows'; 0: none. Never below min_instances:
  /// where they contradict each other, the minimum holds.
  int max_instances = 0;
};

/// In workflow order. The same pools in every set; limits differ.
std::vector<Pool> PoolsOf(const StateMachine& state, const std::string& workflow_set);

/// Null: the workflows have no such pool (any more).
const Pool* FindPool(const std::vector<Pool>& pools, const std::string& id);

/// The pool that the instance's assignment is of; empty: idle.
std::string AssignedPool(const v1::Node& node);

/// False when the node's own configuration pins it to another stage.
inline bool MayServe(const v1::Node& node, const Pool& pool) {
  return node.pinned_stage().empty() || node.pinned_stage() == pool.spec.stage();
}

}  // namespace onepiece::nodemanager
