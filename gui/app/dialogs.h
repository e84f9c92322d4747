// Settings, connections, help.
//
// Threading  GUI thread only.
#pragma once

#include <QDialog>
#include <QLabel>
#include <QListWidget>
#include <QPushButton>
#include <QString>
#include <QTableWidget>
#include <optional>

#include "gui/app/commands.h"
#include "gui/app/local_cluster.h"
#include "gui/app/settings.h"

namespace onepiece::gui {

/// "host:port" of every line or comma; empty and a reason when one is no address.
std::vector<std::string> ParseAddresses(const QString& text, QString* why);

/// Theme, size of type, motion, and every shortcut. Conflicts keep OK from being pressed and say
/// which they are.
class SettingsDialog : public QDialog {
  Q_OBJECT
 public:
  SettingsDialog(const Settings& settings, const CommandList& commands, QWidget* parent);
  /// As edited.
  [[nodiscard]] const Settings& settings() const { return settings_; }

 private:
  QWidget* MakeLook();
  QWidget* MakeShortcuts();
  void Check();

  Settings settings_;
  std::vector<Command> commands_;
  QHash<QString, QString> defaults_;
  QTableWidget* table_ = nullptr;
  QLabel* conflicts_;
  QPushButton* ok_ = nullptr;
};

/// Clusters by name: add, edit, remove, connect; a recording; a local cluster. Works without any
/// connection.
class ConnectionsDialog : public QDialog {
  Q_OBJECT
 public:
  ConnectionsDialog(std::vector<Target> connections, LocalCluster& local, QWidget* parent);
  [[nodiscard]] const std::vector<Target>& connections() const { return connections_; }
  /// The one to connect to.
  [[nodiscard]] const std::optional<Target>& chosen() const { return chosen_; }

 Q_SIGNALS:
  void OpenRecording();

 private:
  void Fill();
  void Edit(int row);
  void Remove();
  void Connect();
  void DrawLocal(const QString& line);

  std::vector<Target> connections_;
  std::optional<Target> chosen_;
  LocalCluster& local_;
  QListWidget* list_;
  QLabel* note_;
  QPushButton *connect_, *edit_, *remove_, *try_;
};

/// Plain text with paragraphs, and every shortcut.
class HelpDialog : public QDialog {
  Q_OBJECT
 public:
  HelpDialog(const QString& title, const QString& text, const CommandList& commands,
             QWidget* parent);
};

}  // namespace onepiece::gui
