// What the console remembers between runs, in one JSON file.
//
// Threading: thread-confined.
#pragma once

#include <QByteArray>
#include <QJsonObject>
#include <QMap>
#include <QString>
#include <vector>

#include "absl/status/status.h"
#include "gui/app/connection.h"

namespace onepiece::gui {

enum class Theme { kSystem, kLight, kDark, kHighContrast };

/// The settings.
struct Settings {
  Theme theme = Theme::kSystem;
  int font_percent = 100;  ///< 100 to 200.
  bool reduced_motion = false;
  bool tour_done = false;
  std::vector<Connection> connections;  ///< Without those of the contexts' file.
  QString last_connection;              ///< The name of a connection.
  QMap<QString, QString> recordings;    ///< The last recording's file, by the connection's name.
  /// Shortcuts that are not the default, by Command::id. "" for none.
  QMap<QString, QString> shortcuts;
  QByteArray geometry, layout;  ///< The main window's, as Qt saves them.
};

/// $XDG_CONFIG_HOME/onepiece-console/settings.json
QString DefaultSettingsPath();
/// $XDG_DATA_HOME/onepiece-console
QString DataFolder();

/// The file of the settings.
class SettingsFile {
 public:
  static constexpr int kVersion = 1;

  /// Reads the file. A file that cannot be understood is never lost: a damaged one, or one of an
  /// older version, is first copied to FILE.damaged or FILE.version-N, and `notice` says so. A file
  /// of a newer version is read as far as it is understood, and is not written.
  static SettingsFile Load(const QString& path);

  Settings values;
  QString notice;  ///< For people. Empty if all is well.

  /// Replaces the file as a whole, with mode 0600. Keys that this version does not know stay.
  ///
  /// Errors: FAILED_PRECONDITION with reason NEWER_FORMAT when the file must not be replaced;
  /// UNAVAILABLE when it cannot be written.
  absl::Status Save();
  [[nodiscard]] const QString& path() const { return path_; }

 private:
  QString path_;
  QJsonObject document_;
  bool newer_ = false;
};

}  // namespace onepiece::gui
