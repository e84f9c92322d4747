// The rows of the table of alerts, and the counts of alerts by state.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

/// "firing", "pending", "resolved", "no data", "error".
QString AlertStateName(session::Alert::State state);
QString SeverityName(session::Alert::Severity severity);

struct AlertRow {
  session::Alert alert;
  bool silenced = false;  ///< At the instant shown.
  StatusTone tone = StatusTone::kUnknown;
  QString state, since, seen, silence;
};
bool operator==(const AlertRow& a, const AlertRow& b);

/// Keeps the order of `alerts` (worst first, then oldest), but puts silenced alerts behind the
/// others of the same state.
std::vector<AlertRow> AlertRows(const session::Alerts& alerts, std::int64_t now_ms);

struct AlertCounts {
  int firing = 0, critical = 0;  ///< Not silenced. `firing` includes `critical`.
  int pending = 0, no_data = 0, error = 0, resolved = 0, silenced = 0;
};
AlertCounts CountAlerts(const std::vector<AlertRow>& rows);
/// Says the counts in one line: "2 firing, 1 of them critical; 1 pending."
QString AlertsInWords(const AlertCounts& counts);
/// The tone of the worst count.
StatusTone ToneOf(const AlertCounts& counts);

std::vector<KeyedTable<AlertRow>::Column> AlertColumns();

}  // namespace onepiece::gui
