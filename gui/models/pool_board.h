// Pools and their instances, as the page "Rebalance" shows them.
//
// Threading: values and pure functions.
#pragma once

#include <QString>
#include <QStringList>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/session/snapshot.h"

namespace onepiece::gui {

/// A pool of a workflow set. An empty `pool` stands for the idle instances of the set.
struct PoolKey {
  std::string workflow_set, pool;
  friend auto operator<=>(const PoolKey&, const PoolKey&) = default;
};

/// A live instance.
struct InstanceCard {
  std::string node_id;
  std::uint64_t incarnation = 0;
  v1::Placement place;       ///< The workflow set is always filled in.
  std::string pinned_stage;  ///< The only stage that its configuration allows. Empty for any.
  v1::Activity activity = v1::ACTIVITY_UNSPECIFIED;
  std::string detail;
  std::optional<double> utilization;
  std::int64_t held_jobs = 0;
  std::string moving;  ///< The plan under way that moves it. Empty for none.
  v1::Move::Phase phase = v1::Move::PHASE_UNSPECIFIED;  ///< The phase of that move.

  [[nodiscard]] PoolKey key() const { return {place.workflow_set(), place.pool()}; }
};

/// A pool, shown as a column.
struct PoolColumn {
  PoolKey key;
  std::vector<std::string> app_ids;
  int min_instances = 0;
  int max_instances = 0;              ///< 0 means no limit.
  std::optional<double> utilization;  ///< Absent if not measured, or for the idle column.
};

/// All pools and instances at one instant.
struct PoolBoard {
  std::uint64_t plan_revision = 0;
  /// By workflow set. Within a set, the pools in the server's order, then idle.
  std::vector<PoolColumn> columns;
  std::vector<InstanceCard> cards;  ///< By name; numbers in names count as numbers.

  [[nodiscard]] const InstanceCard* Find(const std::string& node_id) const;
  [[nodiscard]] const PoolColumn* Find(const PoolKey& key) const;
};

/// Makes the board from the cluster's nodes and from what the elasticity service reports of pools
/// and plans under way.
PoolBoard MakePoolBoard(const session::Snapshot& snapshot);

/// What differs between two boards, a line each: instances that moved, came, left, restarted or
/// became part of a plan, and limits. Loads and activities are left out, because they change all
/// the time.
QStringList ChangesBetween(const PoolBoard& before, const PoolBoard& now);

/// "diffusion/wan/tiny-wan-t2v", "set-2:idle": the CLI's words, made safe to show.
QString PoolName(const PoolKey& key);
/// The pool's name, or "removed". " (pinned)" follows if the instance is pinned.
QString PlaceName(const v1::Placement& place);
/// Compares all that a placement says. An absent field equals an empty one.
bool SamePlace(const v1::Placement& a, const v1::Placement& b);

}  // namespace onepiece::gui
