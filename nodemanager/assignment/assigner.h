// Which stage each instance serves.
#pragma once

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// The changes that bring every live instance to the stage it shall serve; no assignments when all
/// is well already. A pure function: the same state gives the same answer.
///
/// Per workflow set and pool (pools.h), whose instances serve all of its applications with the
/// model of each. An instance is where its placement says; without one, or when the placement's
/// pool is gone, it stays where it is as long as that pool exists, and else it is free. A free one
/// goes to the pool with the smallest instances / min_instances, in workflow order, that has not
/// its maximum; one that its configuration pins serves stages of that name only. A pool below its
/// minimum then takes idle instances, and a pool without any, when none is idle, one that may serve
/// it from the pool that has most for its minimum and at least two; their placements change along.
///
/// A pinned instance whose pool is gone goes to another pool of the stage, and is pinned there;
/// where there is none it is free, and its pin ends.
///
/// Left alone: what a plan under way moves (while it drains even its assignment), placements that
/// are pinned or removed, and an instance that could not load its model. The latter counts for
/// nothing, so that another one is tried; when two have failed it is the model's fault, and no
/// third is spent on it.
v1::Assign PlanAssignments(const StateMachine& state);

}  // namespace onepiece::nodemanager
