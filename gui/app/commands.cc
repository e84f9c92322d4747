#include "gui/app/commands.h"

#include <QKeySequence>
#include <utility>

namespace onepiece::gui {
namespace {

/// True for a key without Ctrl, Alt and Meta, which can be pressed by accident. Function keys do
/// not count.
bool IsSingleKey(const QKeySequence& keys) {
  if (keys.count() != 1) return false;
  const int key = keys[0].key();
  const bool function = key >= Qt::Key_F1 && key <= Qt::Key_F35;
  return !function && (keys[0].keyboardModifiers() &
                       (Qt::ControlModifier | Qt::AltModifier | Qt::MetaModifier)) == 0;
}

}  // namespace

int FuzzyScore(const QString& typed, const QString& text) {
  int score = 0, run = 0;
  qsizetype at = 0;
  for (const QChar letter : typed) {
    if (letter.isSpace()) {
      run = 0;
      continue;
    }
    const qsizetype found = text.indexOf(letter, at, Qt::CaseInsensitive);
    if (found < 0) return -1;
    const bool begins = found == 0 || !text[found - 1].isLetterOrNumber();
    run = found == at && at > 0 ? run + 1 : 0;
    score += 1 + (begins ? 8 : 0) + 4 * run - static_cast<int>(std::min<qsizetype>(found - at, 3));
    at = found + 1;
  }
  if (text.contains(typed.trimmed(), Qt::CaseInsensitive) && !typed.trimmed().isEmpty())
    score += 20;
  return std::max(score, 0);
}

QStringList ShortcutConflicts(const std::vector<Command>& commands) {
  QStringList conflicts;
  QHash<QString, QString> taken;
  for (const Command& command : commands) {
    if (command.shortcut.isEmpty()) continue;
    const QKeySequence keys(command.shortcut, QKeySequence::PortableText);
    const QString name = keys.toString();
    if (name.isEmpty()) {
      conflicts << QObject::tr("%1: “%2” is no key").arg(command.id, command.shortcut);
      continue;
    }
    if (command.changes_cluster && IsSingleKey(keys)) {
      conflicts
          << QObject::tr("%1: no single key (%2) may change the cluster").arg(command.id, name);
    }
    if (taken.contains(name)) {
      conflicts << QObject::tr("%1: %2 is taken by %3").arg(command.id, name, taken[name]);
    }
    taken.insert(name, command.id);
  }
  return conflicts;
}

CommandList::CommandList(ShownCluster& shown_cluster, QWidget* window)
    : QObject(window), shown_cluster_(shown_cluster), window_(window) {
  connect(&shown_cluster_, &ShownCluster::LinkChanged, this, &CommandList::Refresh);
  connect(&shown_cluster_, &ShownCluster::ModeChanged, this, &CommandList::Refresh);
}

void CommandList::Add(Command command, View* view) {
  auto* action = new QAction(command.title, window_);
  action->setObjectName(command.id);
  action->setShortcut(QKeySequence(command.shortcut, QKeySequence::PortableText));
  action->setShortcutContext(Qt::WindowShortcut);
  window_->addAction(action);
  connect(action, &QAction::triggered, this, [this, id = command.id] { Run(id); });
  defaults_.insert(command.id, command.shortcut);
  entries_.push_back({std::move(command), view, action});
}

QStringList CommandList::SetShortcuts(const QMap<QString, QString>& shortcuts) {
  for (CommandEntry& entry : entries_) {
    const QString& id = entry.command.id;
    entry.command.shortcut = shortcuts.value(id, DefaultShortcut(id));
  }
  const auto is_default = [this](const Command& command) {
    return command.shortcut == DefaultShortcut(command.id);
  };
  QStringList refused;
  // All wishes hold at first, so that two commands can swap their keys. A refused command gets its
  // default back. Another command may hold that key by now, so each refusal leads to another round.
  for (bool again = true; std::exchange(again, false);) {
    std::vector<Command> settled;
    for (const CommandEntry& entry : entries_) {
      if (is_default(entry.command)) settled.push_back(entry.command);
    }
    for (CommandEntry& entry : entries_) {
      if (is_default(entry.command)) continue;
      settled.push_back(entry.command);
      const QStringList conflicts = ShortcutConflicts(settled);
      if (conflicts.isEmpty()) continue;
      settled.pop_back();
      entry.command.shortcut = DefaultShortcut(entry.command.id);
      refused << conflicts;
      again = true;
    }
  }
  for (const CommandEntry& entry : entries_) {
    entry.action->setShortcut(QKeySequence(entry.command.shortcut, QKeySequence::PortableText));
  }
  return refused;
}

QAction* CommandList::Action(const QString& id) const {
  for (const CommandEntry& entry : entries_) {
    if (entry.command.id == id) return entry.action;
  }
  return nullptr;
}

std::vector<Command> CommandList::Commands() const {
  std::vector<Command> commands;
  for (const CommandEntry& entry : entries_) commands.push_back(entry.command);
  return commands;
}

void CommandList::Run(const QString& id) {
  for (const CommandEntry& entry : entries_) {
    if (entry.command.id != id) continue;
    // A key may arrive before Refresh() has disabled the action.
    if (!WhyNot(entry.command).isEmpty()) return;
    if (entry.view != nullptr && show_) show_(entry.view);
    // Copied, because the command may add commands and so move `entry`.
    const auto run = entry.command.run;
    run();
    return;
  }
}

QString CommandList::WhyNot(const Command& command) const {
  return command.changes_cluster ? shown_cluster_.WhyNoChange(command.method)
                                 : shown_cluster_.WhyForbidden(command.method);
}

void CommandList::Refresh() {
  for (const CommandEntry& entry : entries_) {
    if (!entry.command.changes_cluster && entry.command.method.empty()) continue;
    const QString why = WhyNot(entry.command);
    entry.action->setEnabled(why.isEmpty());
    entry.action->setStatusTip(why);
    entry.action->setToolTip(why.isEmpty() ? entry.command.title
                                           : entry.command.title + QStringLiteral("\n") + why);
  }
}

}  // namespace onepiece::gui
