// The rows of the list of operations: the cluster's plans that have not ended, and what this
// console asked for.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/models/operations.h"

namespace onepiece::gui {

struct OperationRow {
  QString key;    ///< "plan/ID", "asked/7"
  QString what;   ///< "Plan 7f01…: 3 moves", "Cancel 14 jobs"
  QString state;  ///< "running", "done", "failed", …
  StatusTone tone = StatusTone::kNeutral;
  /// How far it is, or what came of it: "1 of 3 moves done, instance-3 draining".
  QString progress;
  std::optional<double> share;
  QString who;
  std::int64_t since_ms = 0;
  bool operator==(const OperationRow&) const = default;
};

/// The plans that have not ended, then this console's operations, newest first.
std::vector<OperationRow> OperationRows(const session::Snapshot& snapshot,
                                        const std::deque<Operation>& operations);
std::vector<KeyedTable<OperationRow>::Column> OperationColumns();

}  // namespace onepiece::gui
