// Compares two snapshots, for a table of what has changed between a pinned one and the one that is
// shown.
//
// Threading: a pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/session/snapshot.h"

namespace onepiece::history {

/// One row of the table. Texts from outside are cut and valid UTF-8. They are not safe as rich text
/// (see SafeText).
struct Difference {
  /// As Alert::entity ("node/instance-1", "pool/default/diffusion/wan/tiny", "ring/database-1",
  /// "app/wan"), or "plan/7f01…", "alert/ring-stuck/ring/instance-1", "jobs" for the counts of all
  /// jobs, or "cluster".
  std::string entity;
  std::string what;  ///< "state", "pool", "utilization", "running", …
  /// Empty when the entity was not there. "unknown" when nobody knew the value, which is not the
  /// same.
  std::string before, after;
  /// after - before in the texts' unit, where both are numbers.
  std::optional<double> change;
};

/// Returns the differences of nodes (state, activity, stage, applications, pool, incarnation,
/// utilization), workflows, pools, rings, counts of jobs by state, plans and alerts. They are in
/// this order, sorted by entity. An entity that came or went is one row. A part that only one
/// snapshot knows is one row of "cluster".
std::vector<Difference> Compare(const session::Snapshot& a, const session::Snapshot& b);

}  // namespace onepiece::history
