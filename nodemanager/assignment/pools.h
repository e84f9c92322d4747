// The pools of a workflow set: which stages of all workflows share instances, and how many
// instances each pool may have.
#pragma once

#include <cstdint>
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
  /// The kind of device that its instances need: what the set's configuration says, or else
  /// spec.device(), which is a part of the pool's id. Empty: any.
  std::string device;
  /// What the set's configuration says, or else the most that a workflow asks for. 0: any.
  std::int64_t device_memory_bytes = 0;
};

/// The pools in workflow order. Every set has the same pools, with limits of its own.
std::vector<Pool> PoolsOf(const StateMachine& state, const std::string& workflow_set);

/// Returns null when the workflows have no such pool, or have it no longer.
const Pool* FindPool(const std::vector<Pool>& pools, const std::string& id);

/// The pool of the instance's assignment, or an empty string when the instance is idle.
std::string AssignedPool(const v1::Node& node);

/// True when the node has the device that the pool needs. A node that has not said what it computes
/// on has none, and a device of unknown memory has too little.
bool HasDevice(const v1::Node& node, const Pool& pool);
/// What an instance of the pool needs, for people: "a cuda device with 24.0 GiB". Empty: nothing.
std::string NeededDevice(const Pool& pool);

/// False when the node's own configuration pins it to another stage, or it lacks the device.
inline bool MayServe(const v1::Node& node, const Pool& pool) {
  return (node.pinned_stage().empty() || node.pinned_stage() == pool.spec.stage()) &&
         HasDevice(node, pool);
}

}  // namespace onepiece::nodemanager
