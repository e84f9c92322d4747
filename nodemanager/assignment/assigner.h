// The assigner decides which stage each instance serves.
#pragma once

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Returns the changes that bring every live instance to the stage that it shall serve. There are
/// no assignments in it when nothing has to change. It is a pure function: the same state gives the
/// same answer.
///
/// Each workflow set is assigned by itself. An instance belongs to a pool (pools.h), and serves all
/// applications of the pool with the model of each:
/// - An instance stays where its placement says. Without a placement it stays in the pool of its
///   assignment, as long as that pool exists. Otherwise it is free.
/// - A free instance goes to the pool with the smallest ratio of instances to min_instances that is
///   not full. Of equal ones the first in workflow order gets it. An instance that its
///   configuration pins serves stages of that name only.
/// - A pool below its minimum then takes idle instances.
/// - A pool that is still empty takes an instance from the pool with the highest such ratio that
///   has at least two. The placements of taken instances change with them.
/// - A pinned instance whose pool is gone goes to another pool of the stage, and is pinned there.
///   If there is none, it is free and its pin ends.
///
/// Some instances are left alone: those that a plan moves (while they drain, even their assignment
/// stays), those whose placement is pinned or removed, and those that could not load their model.
/// An instance that could not load its model does not count, so another one is tried. After two
/// failures the model is to blame. Both then count, and no third instance is spent.
v1::Assign PlanAssignments(const StateMachine& state);

}  // namespace onepiece::nodemanager
