// What a plan is at, from its moves (docs/elasticity.md).
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "cluster/base/status.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Bounds of a plan as it is started, so that the plans kept fit into a snapshot.
inline constexpr int kMaxMoves = 32;
inline constexpr std::size_t kMaxPlanBytes = 24 << 10;
/// Of whatever a person or a policy gives as actor, reason or detail.
inline constexpr std::size_t kMaxPlanTextBytes = 512;

/// DONE, REVERTED and FAILED: nothing will happen to it any more.
bool HasEnded(const v1::Plan& plan);
/// DRAINING, SWITCHING and REVERTING: counts against the moves at a time.
bool IsUnderWay(v1::Move::Phase phase);
/// The node's placement is still the one that the move takes it away from, and it finishes what it
/// holds there: nothing is assigned to it meanwhile.
bool DrainsFirst(const v1::Move& move, const v1::Node& node);
/// AdvanceMove may take a move from `from` to `to`; all else is up to DecidePlan.
bool MayAdvance(v1::Move::Phase from, v1::Move::Phase to);
/// The plan's state, which follows from its moves' phases and from confirm_by_unix_ms alone.
v1::Plan::State StateOf(const v1::Plan& plan);
/// The node's move of a plan that has not ended; null: none. There is one at most.
const v1::Move* FindMove(const std::deque<v1::Plan>& plans, const std::string& node_id);
const v1::Plan* FindPlan(const std::deque<v1::Plan>& plans, const std::string& plan_id);
/// Both say the same; absent and empty are the same.
bool SamePlacement(const v1::Placement& a, const v1::Placement& b);

/// The plan in itself, whatever the cluster. Errors: INVALID_ARGUMENT (NO_MOVES, TOO_MANY_MOVES,
/// NODE_TWICE, PLAN_TOO_LARGE, TEXT_TOO_LONG).
absl::Status CheckPlan(const v1::Plan& plan);
/// Errors: INVALID_ARGUMENT (TEXT_TOO_LONG).
absl::Status CheckPlanText(const std::string& field, const std::string& text);
/// Errors: INVALID_ARGUMENT (BAD_LIMITS).
absl::Status CheckLimits(const v1::PoolLimits& limits);

}  // namespace onepiece::nodemanager
