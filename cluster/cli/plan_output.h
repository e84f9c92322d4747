// Writes and parses plans, pools and places for `onepiece rebalance`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/terminal/json.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::cli {

using terminal::Json;

/// Parses the place that "POOL", "SET:POOL", "idle" or "SET:idle" names. POOL is a pool id, or a
/// stage that only one pool has (the NodeManager resolves it).
///
/// Errors: INVALID_ARGUMENT (USAGE).
absl::StatusOr<v1::Placement> ParsePlace(std::string_view text);
/// Parses "NODE=PLACE".
///
/// Errors: INVALID_ARGUMENT (USAGE).
absl::StatusOr<v1::Move> ParseMove(std::string_view text);

/// Writes a place as ParsePlace() takes it, without the set if that is "default" or the node's own.
/// Writes "removed" for a removed node, and adds " (pinned)" for a pinned one.
std::string PlaceName(const v1::Placement& placement);
/// Writes "set:pool", or "pool" in the set "default".
std::string PoolName(const std::string& workflow_set, const std::string& pool);

/// Writes a table whose columns are as wide as they need to be. The first row has the heads.
std::string Table(const std::vector<std::vector<std::string>>& rows);

/// Writes a time span for people: "45 s", "3 min", "2 h".
std::string HumanSeconds(double seconds);

Json PlacementDocument(const v1::Placement& placement);
Json PlanDocument(const v1::Plan& plan);
/// Describes the plan, its moves and its predicted effect. `now_unix_ms` tells how long phases have
/// lasted.
std::string PlanText(const v1::Plan& plan, std::int64_t now_unix_ms);
/// Returns the cells of one line: id, state, age, actor, moves, reason.
std::vector<std::string> PlanRow(const v1::Plan& plan, std::int64_t now_unix_ms);

Json ElasticityDocument(const v1::Elasticity& elasticity);
std::string ElasticityText(const v1::Elasticity& elasticity, std::int64_t now_unix_ms);

Json HoldDocument(const v1::Hold& hold);
std::string HoldText(const v1::Hold& hold, std::int64_t now_unix_ms);

/// Writes a time in UTC, "2026-01-31 12:00:00", or an empty text for 0.
std::string TimeText(std::int64_t unix_ms);

}  // namespace onepiece::cli
