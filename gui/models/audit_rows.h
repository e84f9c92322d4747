// The rows of the audit log: who changed what, when and why.
//
// Threading: AuditRows() and AuditKey() are pure functions. The columns of AuditColumns() read the
// system clock and are for the GUI thread.
#pragma once

#include <QString>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

struct AuditRow {
  v1::AuditEntry entry;  ///< As the cluster gave it. Its texts are not safe to show.
  /// "operator:ada", "policy:threshold". Empty if the detail names no actor. The page then says
  /// "the cluster".
  QString who;
  /// entry.detail(), cut to 500 characters, without the actor. Safe to show.
  QString detail;
  /// The entity whose page the window opens for this row: "node/instance-1", "plan/7f01…",
  /// "pool/default/diffusion". Empty if the subject has no page.
  QString entity;
};

/// Returns one row for each entry of `audit`, in the same order: newest first.
std::vector<AuditRow> AuditRows(const session::Audit& audit);
/// Returns the columns of the page "Audit".
std::vector<KeyedTable<AuditRow>::Column> AuditColumns();
/// Returns the key of a row: revision, time, action, subject and detail. The revision alone is not
/// unique, because one revision can have several entries.
QString AuditKey(const AuditRow& row);

}  // namespace onepiece::gui
