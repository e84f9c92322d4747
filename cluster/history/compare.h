// What is different between two snapshots, for a table: "A was pinned, B is looked at".
//
// Threading  Pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/session/snapshot.h"

namespace onepiece::gui::history {

/// Strings from outside are UTF-8 and cut, but not otherwise safe: SafeText.
struct Difference {
  /// As Alert::entity ("node/instance-1", "pool/default/diffusion/wan/tiny", "ring/database-1",
  /// "app/wan"), "plan/7f01…", "alert/ring-stuck/ring/instance-1", "jobs" for the counts of all
  /// jobs, or "cluster".
  std::string entity;
  std::string what;  ///< "state", "pool", "utilization", "running", …
  /// Empty: the entity was not there. "unknown": nobody knew it then, which is not the same.
  std::string before, after;
  /// after - before in the unit that the texts have, where both are numbers.
  std::optional<double> change;
};

/// Nodes (state, activity, stage, applications, pool, restarts, utilization), workflows, pools,
/// rings, counts of jobs by state, plans and alerts: each in this order, by entity. An entity that
/// came or went is one row. A part of which one snapshot knows nothing is one row of "cluster".
std::vector<Difference> Compare(const Snapshot& a, const Snapshot& b);

}  // namespace onepiece::gui::history
