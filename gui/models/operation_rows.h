// The rows of the list of operations. The list holds the cluster's plans that have not ended, and
// the operations that this console has started.
//
// Threading: OperationRows() is a pure function. The columns of OperationColumns() read the system
// clock and are for the GUI thread.
#pragma once

#include <QString>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/models/operations.h"

namespace onepiece::gui {

struct OperationRow {
  QString key;   ///< "plan/ID", "asked/7"
  QString what;  ///< "Plan 7f01…: 3 moves", "Cancel 14 jobs"
  /// Translated: "running" for a plan, "under way" for an operation, "failed", …
  QString state;
  StatusTone tone = StatusTone::kNeutral;
  /// The progress or the outcome: "1 of 3 moves done, instance-3 draining". An operation that
  /// failed has its error here.
  QString progress;
  /// The share of the plan's moves that are done, 0 to 1. While the plan is being reverted, it is
  /// the share that is reverted. nullopt for an operation of this console and for a plan without
  /// moves.
  std::optional<double> share;
  QString who;  ///< The plan's actor ("operator:ada"), or "this console".
  /// Milliseconds since 1970. A plan's time is by the clock of the leader that made it. An
  /// operation's time is by this machine's clock.
  std::int64_t since_ms = 0;
  bool operator==(const OperationRow&) const = default;
};

/// Returns the plans of `snapshot` that have not ended, in its order. The rows of `operations`
/// follow them, in the order given (newest first).
std::vector<OperationRow> OperationRows(const session::Snapshot& snapshot,
                                        const std::deque<Operation>& operations);
std::vector<KeyedTable<OperationRow>::Column> OperationColumns();

}  // namespace onepiece::gui
