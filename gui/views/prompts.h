// What people are asked before the cluster is changed, and told when it refused.
//
// Threading  GUI thread only. Nothing here blocks: answers come to callbacks.
#pragma once

#include <QAbstractButton>
#include <QString>
#include <QStringList>
#include <QWidget>
#include <functional>

#include "absl/status/status.h"
#include "gui/models/store.h"

namespace onepiece::gui {

/// A change that is asked about once. Its targets are named when the question is put and are not
/// computed again (rule C6): what `yes` does is bound to them.
struct Question {
  QString title;        ///< "Cancel 14 queued jobs"
  QString verb;         ///< The button: the effect, "Cancel 14 jobs". Never "OK".
  QString text;         ///< What it does, and what it does not. Plain text.
  QStringList targets;  ///< What it is done to, one a line.
  bool risky = false;   ///< The cluster's name must be typed too.
  bool reason = true;   ///< A reason must be given; it lands in the audit log.
};

/// Asks, with the cluster's name and band in the dialog. The focus is on Cancel, Esc cancels, Enter
/// in the reason's line does not accept, and there is no "do not ask again". `yes` gets the reason.
/// The dialog closes itself when changes become impossible (Store::WhyNoChange), and says why.
void Confirm(QWidget* parent, Store& store, const Question& question,
             std::function<void(const QString& reason)> yes);

/// Says that something did not work: what was tried, the server's code, message and reason, and
/// what to do where the code tells (PERMISSION_DENIED, RESOURCE_EXHAUSTED, ABORTED). [Copy
/// details].
void TellFailure(QWidget* parent, const QString& what, const absl::Status& status);

/// Enables a button, or says in its tool tip why it is not. `tip` is what it says otherwise.
void EnableUnless(QAbstractButton* button, const QString& why_not, const QString& tip = {});

/// Whose changes they are, for `actor` of calls: "operator:NAME" of the user who runs the console.
std::string Actor();

}  // namespace onepiece::gui
