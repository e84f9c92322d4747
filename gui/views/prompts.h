// The dialogs that ask before the cluster is changed, and that say why a change failed.
//
// Threading: GUI thread only.
// Blocking: no call blocks. Answers come to callbacks.
#pragma once

#include <QAbstractButton>
#include <QString>
#include <QStringList>
#include <QWidget>
#include <functional>

#include "absl/status/status.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

/// A change that the operator is asked about once. The targets are fixed when the question is put:
/// `yes` acts on exactly these, whatever has changed since (rule C6 of docs/console.md).
struct Question {
  QString title;  ///< "Cancel 14 queued jobs"
  QString verb;   ///< The button's text, which names the effect: "Cancel 14 jobs". Never "OK".
  QString text;   ///< What the change does, and what it does not do. Plain text.
  QStringList targets;  ///< What it is done to, one entry for each line.
  bool risky = false;   ///< The operator must type the cluster's name, too.
  bool reason = true;   ///< The operator must give a reason. It goes into the audit log.
};

/// Asks the question. The dialog shows the cluster's name and band. Its focus is on Cancel, Esc
/// cancels, Enter in the line of the reason does not accept, and there is no "do not ask again".
/// `yes` gets the reason. If changes become impossible (ShownCluster::WhyNoChange), the dialog
/// closes itself and says why.
void Confirm(QWidget* parent, ShownCluster& shown_cluster, const Question& question,
             std::function<void(const QString& reason)> yes);

/// Says that something failed: what was tried, the server's code, message and reason, and what to
/// do about PERMISSION_DENIED, RESOURCE_EXHAUSTED and ABORTED. A button copies the details.
void TellFailure(QWidget* parent, const QString& what, const absl::Status& status);

/// Enables a button if `why_not` is empty. Otherwise disables it, with `why_not` as its tool tip.
/// `tip` is the tool tip when it is enabled.
void EnableUnless(QAbstractButton* button, const QString& why_not, const QString& tip = {});

/// The `actor` of this console's changes: "operator:NAME", with the name of the user who runs it.
std::string Actor();

}  // namespace onepiece::gui
