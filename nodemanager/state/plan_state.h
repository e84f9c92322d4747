// Pure functions of plans: what state a plan is in, what its moves may do next, and whether it is
// well-formed (docs/elasticity.md, "Moves that lose nothing").
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "cluster/base/status.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Bounds of a plan when it starts. With them, all the plans that are kept fit into a snapshot.
inline constexpr int kMaxMoves = 32;
inline constexpr std::size_t kMaxPlanBytes = 24 << 10;
/// The longest text that a person or a policy may give as actor, reason or detail.
inline constexpr std::size_t kMaxPlanTextBytes = 512;

/// True for DONE, REVERTED and FAILED: the plan will not change any more.
bool HasEnded(const v1::Plan& plan);
/// True for DRAINING, SWITCHING and REVERTING: the move counts against max_moves.
bool IsUnderWay(v1::Move::Phase phase);
/// True while the node finishes what it holds at the place that the move takes it away from.
/// Nothing is assigned to it meanwhile.
bool DrainsFirst(const v1::Move& move, const v1::Node& node);
/// True when AdvanceMove may take a move from `from` to `to` in a state of that version. Only
/// DecidePlan makes other changes of phase. Since version 3 a move may go back alone.
bool MayAdvance(v1::Move::Phase from, v1::Move::Phase to, std::uint32_t version);
/// The plan's state. It follows from its moves' phases and from confirm_by_unix_ms alone. A plan of
/// which some moves came back alone runs and ends like one without these moves.
v1::Plan::State StateOf(const v1::Plan& plan);
/// The node's move in a plan that has not ended, or null. A node has one such move at most.
const v1::Move* FindMove(const std::deque<v1::Plan>& plans, const std::string& node_id);
/// All such moves by node, for whoever looks at many nodes. They point into `plans`.
std::map<std::string, const v1::Move*> RunningMoves(const std::deque<v1::Plan>& plans);
/// The plan of this id, or null.
const v1::Plan* FindPlan(const std::deque<v1::Plan>& plans, const std::string& plan_id);
/// True when both name the same place. An absent placement equals an empty one.
bool SamePlacement(const v1::Placement& a, const v1::Placement& b);

/// Checks what can be said of a plan without knowing the cluster.
/// Errors: INVALID_ARGUMENT (NO_MOVES, TOO_MANY_MOVES, NODE_TWICE, PLAN_TOO_LARGE, TEXT_TOO_LONG).
absl::Status CheckPlan(const v1::Plan& plan);
/// Errors: INVALID_ARGUMENT (TEXT_TOO_LONG).
absl::Status CheckPlanText(const std::string& field, const std::string& text);
/// Errors: INVALID_ARGUMENT (BAD_LIMITS).
absl::Status CheckLimits(const v1::PoolLimits& limits);

}  // namespace onepiece::nodemanager
