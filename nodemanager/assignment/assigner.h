// Which stage each instance serves.
#pragma once

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// The changes that bring every live instance to the stage it shall serve; no assignments when all
/// is well already. A pure function: the same state gives the same answer.
///
/// Per workflow set: stages of all workflows that agree in (stage, plugin, pool, threads,
/// precision), the model standing in for a pool that is not named, count as one, whose instances
/// serve all of those applications with the model of each. A pinned instance serves stages of its
/// name only. An instance stays where it is as long as that stage exists; a free one goes to the
/// stage with the smallest instances / min_instances, in workflow order. A stage without any
/// instance, when none is free, takes one that may serve it from the stage that has most for its
/// minimum and at least two.
v1::Assign PlanAssignments(const StateMachine& state);

}  // namespace onepiece::nodemanager
