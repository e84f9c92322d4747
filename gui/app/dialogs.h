// The dialogs for settings, connections and help.
//
// Threading: GUI thread only.
#pragma once

#include <QDialog>
#include <QLabel>
#include <QListWidget>
#include <QPushButton>
#include <QString>
#include <QTableWidget>
#include <optional>

#include "gui/app/commands.h"
#include "gui/app/connection_dialog.h"
#include "gui/app/local_cluster.h"
#include "gui/app/settings.h"

namespace onepiece::gui {

/// Edits theme, font size, motion and all shortcuts. While shortcuts conflict, the dialog names the
/// conflicts and OK is disabled.
class SettingsDialog : public QDialog {
  Q_OBJECT
 public:
  SettingsDialog(const Settings& settings, const CommandList& commands, QWidget* parent);
  /// The settings as edited.
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

/// Edits the list of clusters, and offers to connect to one, to open a recording or to start a
/// local cluster. It needs no connection. The contexts of the command line are in the list too, but
/// for those whose name a cluster of the console has.
class ConnectionsDialog : public QDialog {
  Q_OBJECT
 public:
  /// `contexts_path` is the file of `onepiece context` (contexts::DefaultPath()).
  ConnectionsDialog(std::vector<Connection> connections, std::string contexts_path,
                    LocalCluster& local, QWidget* parent);
  [[nodiscard]] const std::vector<Connection>& connections() const { return connections_; }
  /// The cluster to connect to; nullopt if none was chosen.
  [[nodiscard]] const std::optional<Connection>& chosen() const { return chosen_; }

 Q_SIGNALS:
  void OpenRecording();

 private:
  void ReadContexts();
  /// In the order of the list.
  [[nodiscard]] std::vector<Connection> All() const;
  void Fill();
  void DrawButtons();
  void Edit(int row);
  void Remove();
  void Connect();
  void DrawLocal(const QString& line);

  std::vector<Connection> connections_, contexts_;
  const std::string contexts_path_;
  QString trouble_;  ///< Why there are no contexts. Empty if all is well.
  std::optional<Connection> chosen_;
  LocalCluster& local_;
  QListWidget* list_;
  QLabel* note_;
  QPushButton *connect_, *edit_, *remove_, *try_;
};

/// Shows a page's help as plain text, and all shortcuts.
class HelpDialog : public QDialog {
  Q_OBJECT
 public:
  HelpDialog(const QString& title, const QString& text, const CommandList& commands,
             QWidget* parent);
};

}  // namespace onepiece::gui
