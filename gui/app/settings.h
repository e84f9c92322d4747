// What the console remembers between runs: one JSON file of its own.
//
// Threading  Thread-confined.
#pragma once

#include <QByteArray>
#include <QJsonObject>
#include <QMap>
#include <QString>
#include <vector>

#include "absl/status/status.h"
#include "cluster/session/session.h"

namespace onepiece::gui {

enum class Theme { kSystem, kLight, kDark, kHighContrast };

struct Settings {
  Theme theme = Theme::kSystem;
  int font_percent = 100;  ///< 100 to 200.
  bool reduced_motion = false;
  bool tour_done = false;
  std::vector<Target> connections;
  QString last_connection;            ///< By name.
  QMap<QString, QString> recordings;  ///< File of the last recording, by connection's name.
  QMap<QString, QString> shortcuts;   ///< By Command::id, where they are not the default; "": none.
  QByteArray geometry, layout;        ///< Of the main window.
};

/// $XDG_CONFIG_HOME/onepiece-console/settings.json
QString DefaultSettingsPath();
/// $XDG_DATA_HOME/onepiece-console
QString DataFolder();

class SettingsFile {
 public:
  static constexpr int kVersion = 1;

  /// Reads the file. What cannot be read is never lost: a file of another version or a damaged one
  /// is copied to FILE.version-N or FILE.damaged first, and `notice` says so. A newer file is read
  /// as far as it is understood and not written.
  static SettingsFile Load(const QString& path);

  Settings values;
  QString notice;  ///< For people; empty: all is well.

  /// Replaces the file as a whole (mode 0600); keys that we do not know stay. FAILED_PRECONDITION
  /// (NEWER_FORMAT), UNAVAILABLE (it cannot be written).
  absl::Status Save();
  [[nodiscard]] const QString& path() const { return path_; }

 private:
  QString path_;
  QJsonObject document_;
  bool newer_ = false;
};

}  // namespace onepiece::gui
