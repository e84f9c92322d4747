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
#include "gui/app/local_cluster.h"
#include "gui/app/settings.h"

namespace onepiece::gui {

/// Splits a text into addresses of the form "host:port", separated by commas or white space. If one
/// is not an address, the answer is empty and `why`, if not null, says the reason.
std::vector<std::string> ParseAddresses(const QString& text, QString* why);

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
/// local cluster. It needs no connection.
class ConnectionsDialog : public QDialog {
  Q_OBJECT
 public:
  ConnectionsDialog(std::vector<session::ClusterAddress> connections, LocalCluster& local,
                    QWidget* parent);
  [[nodiscard]] const std::vector<session::ClusterAddress>& connections() const {
    return connections_;
  }
  /// The cluster to connect to; nullopt if none was chosen.
  [[nodiscard]] const std::optional<session::ClusterAddress>& chosen() const { return chosen_; }

 Q_SIGNALS:
  void OpenRecording();

 private:
  void Fill();
  void Edit(int row);
  void Remove();
  void Connect();
  void DrawLocal(const QString& line);

  std::vector<session::ClusterAddress> connections_;
  std::optional<session::ClusterAddress> chosen_;
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
