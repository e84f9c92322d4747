// The rows of the audit log: who changed what, when and why.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

struct AuditRow {
  v1::AuditEntry entry;
  QString who;     ///< "operator:ada", "policy:threshold". Empty for the cluster itself.
  QString detail;  ///< The detail without its actor.
  QString entity;  ///< What the change is about, as the window opens it. Empty if it has no page.
};

/// Newest first, as in `audit`.
std::vector<AuditRow> AuditRows(const session::Audit& audit);
std::vector<KeyedTable<AuditRow>::Column> AuditColumns();
/// The key of a row. One revision can have several entries, so the key holds more than the
/// revision.
QString AuditKey(const AuditRow& row);

}  // namespace onepiece::gui
