// All commands in one list. Menus, palette, shortcuts and buttons are made from it.
//
// Threading: GUI thread only.
#pragma once

#include <QAction>
#include <QHash>
#include <QMap>
#include <QObject>
#include <QStringList>
#include <functional>
#include <vector>

#include "gui/views/view.h"

namespace onepiece::gui {

/// How well `text` matches what was typed: its letters must occur in order, and count more at the
/// beginnings of words and next to each other. Negative if it does not match; 0 if nothing was
/// typed.
int FuzzyScore(const QString& typed, const QString& text);

/// The conflicts among shortcuts, a line for each: two commands with the same key, or a single key
/// that changes the cluster.
QStringList ShortcutConflicts(const std::vector<Command>& commands);

/// A command of a CommandList, with what it needs to run.
struct CommandEntry {
  Command command;  ///< With its present shortcut.
  View* view;
  QAction* action;
};

/// The list of commands, with a QAction for each.
///
/// Ownership: the actions belong to `window`.
class CommandList : public QObject {
 public:
  CommandList(ShownCluster& shown_cluster, QWidget* window);

  /// Adds a command of a page, or of the window if `view` is null. A page's command runs after
  /// SetShow()'s function has shown the page.
  void Add(Command command, View* view = nullptr);
  /// Sets what is called before a page's command runs.
  void SetShow(std::function<void(View*)> show) { show_ = std::move(show); }
  /// Sets the operator's shortcuts, by command id. All are taken together, so that commands can
  /// swap their keys. A shortcut that would conflict is not set, and its command keeps the key that
  /// it was added with; the answer has a line for each.
  QStringList SetShortcuts(const QMap<QString, QString>& shortcuts);

  [[nodiscard]] const std::vector<CommandEntry>& entries() const { return entries_; }
  [[nodiscard]] QAction* Action(const QString& id) const;
  [[nodiscard]] std::vector<Command> Commands() const;
  /// The shortcut that the command was added with.
  [[nodiscard]] QString DefaultShortcut(const QString& id) const { return defaults_.value(id); }
  void Run(const QString& id);
  /// Why the command cannot run now; empty if it can.
  [[nodiscard]] QString WhyNot(const Command& command) const;
  /// Enables and disables the commands by WhyNot().
  void Refresh();

 private:
  ShownCluster& shown_cluster_;
  QWidget* window_;
  std::function<void(View*)> show_;
  std::vector<CommandEntry> entries_;
  QHash<QString, QString> defaults_;
};

}  // namespace onepiece::gui
