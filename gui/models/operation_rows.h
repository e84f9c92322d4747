// Rows of what is under way and what was asked for: plans of the cluster, operations of this
// console.
//
// Threading  Pure functions.
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
  QString progress;  ///< "1 of 3 moves done; instance-3 draining", or what came of it.
  std::optional<double> share;
  QString who;
  std::int64_t since_ms = 0;
  bool operator==(const OperationRow&) const = default;
};

/// Plans that have not ended first, then what was asked for, newest first.
std::vector<OperationRow> OperationRows(const Snapshot& snapshot,
                                        const std::deque<Operation>& operations);
std::vector<KeyedTable<OperationRow>::Column> OperationColumns();

}  // namespace onepiece::gui
