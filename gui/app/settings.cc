#include "gui/app/settings.h"

#include <QDir>
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QJsonDocument>
#include <QSaveFile>
#include <algorithm>

#include "cluster/base/status.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr const char* kThemes[] = {"system", "light", "dark", "high-contrast"};

QString XdgFolder(const char* variable, const char* beneath_home) {
  const QString set = qEnvironmentVariable(variable);
  // The XDG specification says that relative paths must be ignored.
  const QString base =
      QDir::isAbsolutePath(set) ? set : QDir::home().filePath(QLatin1String(beneath_home));
  return base + QStringLiteral("/onepiece-console");
}

Connection ReadConnection(const QJsonObject& json) {
  Connection connection;
  session::ClusterAddress& target = connection.cluster;
  target.name = json[u"name"].toString().toStdString();
  for (const QJsonValue& address : json[u"nodemanagers"].toArray()) {
    if (address.isString()) target.nodemanagers.push_back(address.toString().toStdString());
  }
  target.production = json[u"production"].toBool();
  connection.credentials = IdentityIn(json[u"identity"].toString().toStdString());
  connection.credentials.authorities = json[u"ca"].toString().toStdString();
  connection.credentials.token_file = json[u"token_file"].toString().toStdString();
  return connection;
}

QJsonObject WriteConnection(const Connection& connection) {
  QJsonArray addresses;
  for (const std::string& address : connection.cluster.nodemanagers) {
    addresses.append(QString::fromStdString(address));
  }
  // Paths alone: secrets stay in their files.
  const contexts::Credentials& credentials = connection.credentials;
  return {{QStringLiteral("name"), QString::fromStdString(connection.cluster.name)},
          {QStringLiteral("nodemanagers"), addresses},
          {QStringLiteral("production"), connection.cluster.production},
          {QStringLiteral("identity"), QString::fromStdString(credentials.folder)},
          {QStringLiteral("ca"), QString::fromStdString(credentials.authorities)},
          {QStringLiteral("token_file"), QString::fromStdString(credentials.token_file)}};
}

QMap<QString, QString> ReadTexts(const QJsonObject& json) {
  QMap<QString, QString> texts;
  for (auto entry = json.begin(); entry != json.end(); ++entry) {
    texts.insert(entry.key(), entry.value().toString());
  }
  return texts;
}

QJsonObject WriteTexts(const QMap<QString, QString>& texts) {
  QJsonObject json;
  for (auto entry = texts.begin(); entry != texts.end(); ++entry) json[entry.key()] = entry.value();
  return json;
}

Settings Read(const QJsonObject& json) {
  Settings settings;
  const QString theme = json[u"theme"].toString();
  for (int i = 0; i < 4; ++i) {
    if (theme == QLatin1String(kThemes[i])) settings.theme = static_cast<Theme>(i);
  }
  settings.font_percent = std::clamp(json[u"font_percent"].toInt(100), 100, 200);
  settings.reduced_motion = json[u"reduced_motion"].toBool();
  settings.tour_done = json[u"tour_done"].toBool();
  for (const QJsonValue& value : json[u"connections"].toArray()) {
    Connection connection = ReadConnection(value.toObject());
    if (!connection.cluster.name.empty() && !connection.cluster.nodemanagers.empty()) {
      settings.connections.push_back(std::move(connection));
    }
  }
  settings.last_connection = json[u"last_connection"].toString();
  settings.recordings = ReadTexts(json[u"recordings"].toObject());
  settings.shortcuts = ReadTexts(json[u"shortcuts"].toObject());
  settings.geometry = QByteArray::fromBase64(json[u"geometry"].toString().toLatin1());
  settings.layout = QByteArray::fromBase64(json[u"layout"].toString().toLatin1());
  return settings;
}

void Write(const Settings& settings, QJsonObject& json) {
  json[u"version"] = SettingsFile::kVersion;
  json[u"theme"] = QLatin1String(kThemes[static_cast<int>(settings.theme)]);
  json[u"font_percent"] = settings.font_percent;
  json[u"reduced_motion"] = settings.reduced_motion;
  json[u"tour_done"] = settings.tour_done;
  QJsonArray connections;
  for (const Connection& connection : settings.connections) {
    connections.append(WriteConnection(connection));
  }
  json[u"connections"] = connections;
  json[u"last_connection"] = settings.last_connection;
  json[u"recordings"] = WriteTexts(settings.recordings);
  json[u"shortcuts"] = WriteTexts(settings.shortcuts);
  json[u"geometry"] = QString::fromLatin1(settings.geometry.toBase64());
  json[u"layout"] = QString::fromLatin1(settings.layout.toBase64());
}

/// Copies the file to another name. An earlier copy is not overwritten. Empty if it cannot be
/// copied.
QString KeepCopy(const QString& path, const QString& suffix) {
  QString copy = path + suffix;
  for (int i = 2; QFile::exists(copy) && i < 100; ++i)
    copy = path + suffix + u'-' + QString::number(i);
  return QFile::copy(path, copy) ? copy : QString();
}

}  // namespace

QString DefaultSettingsPath() {
  return XdgFolder("XDG_CONFIG_HOME", ".config") + QStringLiteral("/settings.json");
}

QString DataFolder() { return XdgFolder("XDG_DATA_HOME", ".local/share"); }

SettingsFile SettingsFile::Load(const QString& path) {
  SettingsFile file;
  file.path_ = path;
  QFile stored(path);
  if (!stored.exists()) return file;
  if (!stored.open(QIODevice::ReadOnly)) {
    file.newer_ = true;  // It may be another user's file, or a folder, so it must not be replaced.
    file.notice =
        Tr("The settings in %1 cannot be read (%2): the defaults hold, and nothing is saved.")
            .arg(path, stored.errorString());
    return file;
  }
  constexpr qint64 kMaxBytes = 4 << 20;
  QJsonParseError error{};
  const QJsonDocument document = QJsonDocument::fromJson(stored.read(kMaxBytes), &error);
  if (!document.isObject()) {
    const QString copy = KeepCopy(path, QStringLiteral(".damaged"));
    file.newer_ = copy.isEmpty();
    file.notice =
        Tr("The settings in %1 are damaged (%2): the defaults hold. The file was kept as %3.")
            .arg(path, error.errorString(), copy.isEmpty() ? path : copy);
    return file;
  }
  file.document_ = document.object();
  file.values = Read(file.document_);
  const int version = file.document_[u"version"].toInt(0);
  if (version > kVersion) {
    file.newer_ = true;
    file.notice = Tr("The settings in %1 are of a newer console (version %2; this one knows %3): "
                     "they are used as far as they are understood, and changes are not saved.")
                      .arg(path)
                      .arg(version)
                      .arg(kVersion);
  } else if (version < kVersion) {
    const QString copy = KeepCopy(path, QStringLiteral(".version-%1").arg(version));
    file.newer_ = copy.isEmpty();
    file.notice =
        copy.isEmpty()
            ? Tr("The settings in %1 are of an older console and cannot be copied aside: changes "
                 "are not saved.")
                  .arg(path)
            : Tr("The settings were taken over from an older console. The file was kept as %1.")
                  .arg(copy);
  }
  return file;
}

absl::Status SettingsFile::Save() {
  if (newer_) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NEWER_FORMAT",
                           "the settings are not ours to replace: " + notice.toStdString());
  }
  Write(values, document_);
  QDir().mkpath(QFileInfo(path_).absolutePath());
  QSaveFile target(path_);
  if (!target.open(QIODevice::WriteOnly) ||
      !target.setPermissions(QFileDevice::ReadOwner | QFileDevice::WriteOwner) ||
      target.write(QJsonDocument(document_).toJson()) < 0 || !target.commit()) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NOT_SAVED",
                           "the settings cannot be written to " + path_.toStdString() + ": " +
                               target.errorString().toStdString());
  }
  return absl::OkStatus();
}

}  // namespace onepiece::gui
