// Rows of the alerts, and how many there are of what.
//
// Threading  Pure functions.
#pragma once

#include <QString>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

/// "firing", "pending", "resolved", "no data", "error".
QString AlertStateName(Alert::State state);
QString SeverityName(Alert::Severity severity);

struct AlertRow {
  Alert alert;
  bool silenced = false;  ///< At the instant that is shown.
  StatusTone tone = StatusTone::kUnknown;
  QString state, since, seen, silence;
};
bool operator==(const AlertRow& a, const AlertRow& b);

/// In the order of the alerts: worst first, then oldest; silenced ones of a state after the others.
std::vector<AlertRow> AlertRows(const Alerts& alerts, std::int64_t now_ms);

struct AlertCounts {
  int firing = 0, critical = 0;  ///< Not silenced; `critical` are among the firing.
  int pending = 0, no_data = 0, error = 0, resolved = 0, silenced = 0;
};
AlertCounts CountAlerts(const std::vector<AlertRow>& rows);
QString AlertsInWords(const AlertCounts& counts);
StatusTone ToneOf(const AlertCounts& counts);

std::vector<KeyedTable<AlertRow>::Column> AlertColumns();

}  // namespace onepiece::gui
