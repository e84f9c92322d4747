// Plans, pools and places as `onepiece rebalance` shows and takes them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::cli {

using Json = nlohmann::ordered_json;

/// The place that "POOL", "SET:POOL", "idle" or "SET:idle" names. POOL is a pool id, or a stage
/// that only one pool has (the NodeManager resolves it). Errors: INVALID_ARGUMENT (USAGE).
absl::StatusOr<v1::Placement> ParsePlace(std::string_view text);
/// "NODE=PLACE". Errors: INVALID_ARGUMENT (USAGE).
absl::StatusOr<v1::Move> ParseMove(std::string_view text);

/// A place as ParsePlace takes it, without the set where it is "default" or the node's own;
/// "removed", and " (pinned)", where that holds.
std::string PlaceName(const v1::Placement& placement);
/// "set:pool", or "pool" in the set "default".
std::string PoolName(const std::string& workflow_set, const std::string& pool);

/// Columns under their heads, as wide as they need; the first row holds the heads.
std::string Table(const std::vector<std::vector<std::string>>& rows);

/// "45 s", "3 min", "2 h"
std::string HumanSeconds(double seconds);

Json PlacementDocument(const v1::Placement& placement);
Json PlanDocument(const v1::Plan& plan);
/// The plan, its moves and its predicted effect. `now_unix_ms`: for how long things have lasted.
std::string PlanText(const v1::Plan& plan, std::int64_t now_unix_ms);
/// One line: id, state, moves, actor, reason.
std::vector<std::string> PlanRow(const v1::Plan& plan, std::int64_t now_unix_ms);

Json ElasticityDocument(const v1::Elasticity& elasticity);
std::string ElasticityText(const v1::Elasticity& elasticity, std::int64_t now_unix_ms);

Json HoldDocument(const v1::Hold& hold);
std::string HoldText(const v1::Hold& hold, std::int64_t now_unix_ms);

/// "2026-01-31 12:00:00" (UTC); empty for 0.
std::string TimeText(std::int64_t unix_ms);

}  // namespace onepiece::cli
