// Rows of the audit log: who changed what, when and why.
//
// Threading  Pure functions.
#pragma once

#include <QString>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

struct AuditRow {
  v1::AuditEntry entry;
  QString who;     ///< "operator:ada", "policy:threshold"; empty: the cluster itself.
  QString detail;  ///< Without who.
  QString entity;  ///< What it is about, for the shell; empty: nothing that has a page.
};

/// Newest first, as they are kept.
std::vector<AuditRow> AuditRows(const Audit& audit);
std::vector<KeyedTable<AuditRow>::Column> AuditColumns();
/// Of the row: its revision, and what tells apart the entries of one revision.
QString AuditKey(const AuditRow& row);

}  // namespace onepiece::gui
