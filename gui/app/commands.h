// Everything that can be done, in one list: menus, palette, shortcuts and buttons all come from it.
//
// Threading  GUI thread only.
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

/// How well `text` answers to what was typed: letters in order, better at the beginnings of words
/// and next to each other. Negative: not at all. Nothing typed: 0.
int FuzzyScore(const QString& typed, const QString& text);

/// Two commands with one key, or a single key that changes the cluster; a line for each.
QStringList ShortcutConflicts(const std::vector<Command>& commands);

/// Ownership  The actions belong to `window`.
class CommandList : public QObject {
 public:
  CommandList(Store& store, QWidget* window);

  /// `view`: whose command it is; it runs after the view was shown by `show`. Null: the shell's.
  void Add(Command command, View* view = nullptr);
  /// Called before a view's command runs.
  void SetShow(std::function<void(View*)> show) { show_ = std::move(show); }
  /// People's shortcuts by id; those that would conflict are not taken and are returned as lines.
  QStringList SetShortcuts(const QMap<QString, QString>& shortcuts);

  struct Entry {
    Command command;  ///< With the shortcut that holds now.
    View* view;
    QAction* action;
  };
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] QAction* Action(const QString& id) const;
  [[nodiscard]] std::vector<Command> Commands() const;
  /// As they were added.
  [[nodiscard]] QString DefaultShortcut(const QString& id) const { return defaults_.value(id); }
  void Run(const QString& id);
  /// Enables and disables by Store::WhyNoChange().
  void Refresh();

 private:
  Store& store_;
  QWidget* window_;
  std::function<void(View*)> show_;
  std::vector<Entry> entries_;
  QHash<QString, QString> defaults_;
};

}  // namespace onepiece::gui
