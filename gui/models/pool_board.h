// Pools and the instances in them, as the page that moves instances shows them.
//
// Threading  Values and pure functions.
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

/// A pool of a workflow set, or (empty `pool`) those of the set that are idle.
struct PoolKey {
  std::string workflow_set, pool;
  friend auto operator<=>(const PoolKey&, const PoolKey&) = default;
};

/// A live instance.
struct InstanceCard {
  std::string node_id;
  std::uint64_t incarnation = 0;
  v1::Placement place;       ///< The workflow set is always filled in.
  std::string pinned_stage;  ///< By its configuration it serves this stage alone; empty: any.
  v1::Activity activity = v1::ACTIVITY_UNSPECIFIED;
  std::string detail;
  std::optional<double> utilization;
  std::int64_t held_jobs = 0;
  std::string moving;  ///< The plan under way that it is part of; empty: none.
  v1::Move::Phase phase = v1::Move::PHASE_UNSPECIFIED;  ///< Of that plan.

  [[nodiscard]] PoolKey key() const { return {place.workflow_set(), place.pool()}; }
};

struct PoolColumn {
  PoolKey key;
  std::vector<std::string> app_ids;
  int min_instances = 0;
  int max_instances = 0;              ///< 0: no limit.
  std::optional<double> utilization;  ///< Absent: not measured, or idle.
};

struct PoolBoard {
  std::uint64_t plan_revision = 0;
  std::vector<PoolColumn> columns;  ///< By workflow set; pools as the server lists them, then idle.
  std::vector<InstanceCard> cards;  ///< By name, numbers in it by size.

  [[nodiscard]] const InstanceCard* Find(const std::string& node_id) const;
  [[nodiscard]] const PoolColumn* Find(const PoolKey& key) const;
};

/// From the cluster's nodes and what the elasticity service tells of pools and plans under way.
PoolBoard MakePoolBoard(const Snapshot& snapshot);

/// What has become another one between two boards, a line each: instances that moved, came, left,
/// restarted or are part of a plan by now; limits. What only they do (loads, activities) is left
/// out.
QStringList ChangesBetween(const PoolBoard& before, const PoolBoard& now);

/// "diffusion/wan/tiny-wan-t2v", "set-2:idle": the CLI's words, made safe to show.
QString PoolName(const PoolKey& key);
/// The same, or "removed"; with " (pinned)" where that holds.
QString PlaceName(const v1::Placement& place);
/// Both say the same; absent and empty are the same.
bool SamePlace(const v1::Placement& a, const v1::Placement& b);

}  // namespace onepiece::gui
