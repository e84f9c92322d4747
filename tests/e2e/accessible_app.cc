#include "tests/e2e/accessible_app.h"

#include <QDBusArgument>
#include <QDBusMessage>
#include <QDBusReply>
#include <QFile>
#include <QImage>
#include <QtEndian>
#include <utility>

#include "tests/eventually.h"

namespace onepiece::testing {
namespace {

constexpr int kCallMs = 5000;
constexpr char kAccessible[] = "org.a11y.atspi.Accessible";
constexpr char kAction[] = "org.a11y.atspi.Action";
// AtspiStateType
constexpr int kChecked = 4, kEnabled = 8, kShowing = 25;

/// Returns the first line that a program prints.
QString FirstLine(QProcess& process) {
  while (!process.canReadLine()) {
    if (!process.waitForReadyRead(10'000)) return {};
  }
  return QString::fromUtf8(process.readLine()).trimmed();
}

/// Xvfb keeps its screen as an X window dump (XWDFile.h, version 7) in a file.
QImage ReadDump(const QString& path) {
  QFile file(path);
  if (!file.open(QIODevice::ReadOnly)) return {};
  const QByteArray bytes = file.readAll();
  const auto word = [&](int index) {
    return static_cast<int>(qFromBigEndian<quint32>(bytes.constData() + index * 4));
  };
  constexpr int kHeaderWords = 25, kColorBytes = 12;
  if (bytes.size() < kHeaderWords * 4 || word(1) != 7 || word(11) != 32) return {};
  const int width = word(4), height = word(5), stride = word(12);
  const int pixels = word(0) + word(19) * kColorBytes;
  if (bytes.size() < pixels + qsizetype{stride} * height) return {};
  return QImage(reinterpret_cast<const uchar*>(bytes.constData()) + pixels, width, height, stride,
                QImage::Format_RGB32)
      .copy();
}

}  // namespace

Desktop::Desktop(int width, int height) {
  if (!folder_.isValid()) {
    error_ = folder_.errorString();
  } else if (StartDisplay(width, height)) {
    StartBuses();
  }
}

Desktop::~Desktop() {
  QDBusConnection::disconnectFromBus(bus_.name());
  for (QProcess* process : {&session_, &display_}) {
    process->terminate();
    if (!process->waitForFinished(5000)) process->kill();
    process->waitForFinished(5000);
  }
}

bool Desktop::StartDisplay(int width, int height) {
  display_.setProcessChannelMode(QProcess::SeparateChannels);
  display_.setStandardErrorFile(folder_.filePath(QStringLiteral("display.log")));
  display_.start(QStringLiteral("Xvfb"),
                 {QStringLiteral("-displayfd"), QStringLiteral("1"), QStringLiteral("-screen"),
                  QStringLiteral("0"), QStringLiteral("%1x%2x24").arg(width).arg(height),
                  QStringLiteral("-fbdir"), folder_.path(), QStringLiteral("-nolisten"),
                  QStringLiteral("tcp"), QStringLiteral("-dpi"), QStringLiteral("96")});
  const QString number = FirstLine(display_);
  if (number.isEmpty()) {
    error_ = QStringLiteral("Xvfb does not start: ") + display_.errorString();
    return false;
  }
  display_name_ = QStringLiteral(":") + number;
  return true;
}

bool Desktop::StartBuses() {
  QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
  environment.insert(QStringLiteral("DISPLAY"), display_name_);
  environment.insert(QStringLiteral("XDG_RUNTIME_DIR"), folder_.path());
  session_.setProcessEnvironment(environment);
  session_.setStandardErrorFile(folder_.filePath(QStringLiteral("bus.log")));
  session_.start(
      QStringLiteral("dbus-daemon"),
      {QStringLiteral("--session"), QStringLiteral("--nofork"), QStringLiteral("--print-address"),
       QStringLiteral("--address=unix:path=%1/bus").arg(folder_.path())});
  session_address_ = FirstLine(session_);
  if (session_address_.isEmpty()) {
    error_ = QStringLiteral("dbus-daemon does not start: ") + session_.errorString();
    return false;
  }
  const QString name = QStringLiteral("session-%1").arg(reinterpret_cast<quintptr>(this));
  QDBusConnection session = QDBusConnection::connectToBus(session_address_, name);
  const QDBusReply<QString> address =
      session.call(QDBusMessage::createMethodCall(
                       QStringLiteral("org.a11y.Bus"), QStringLiteral("/org/a11y/bus"),
                       QStringLiteral("org.a11y.Bus"), QStringLiteral("GetAddress")),
                   QDBus::Block, 20'000);
  QDBusConnection::disconnectFromBus(name);
  if (!address.isValid()) {
    error_ = QStringLiteral("no accessibility bus: ") + address.error().message();
    return false;
  }
  bus_ = QDBusConnection::connectToBus(address.value(), name + QStringLiteral("-a11y"));
  if (!bus_.isConnected()) error_ = bus_.lastError().message();
  return error_.isEmpty();
}

QProcessEnvironment Desktop::environment() const {
  QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
  environment.insert(QStringLiteral("DISPLAY"), display_name_);
  environment.insert(QStringLiteral("DBUS_SESSION_BUS_ADDRESS"), session_address_);
  environment.insert(QStringLiteral("XDG_RUNTIME_DIR"), folder_.path());
  environment.insert(QStringLiteral("QT_QPA_PLATFORM"), QStringLiteral("xcb"));
  environment.insert(QStringLiteral("QT_LINUX_ACCESSIBILITY_ALWAYS_ON"), QStringLiteral("1"));
  return environment;
}

bool Desktop::Save(const QString& path) const {
  const QImage image = ReadDump(folder_.filePath(QStringLiteral("Xvfb_screen0")));
  return !image.isNull() && image.save(path, "PNG");
}

Accessible::Accessible(QDBusConnection bus, QString service, QString path)
    : bus_(std::move(bus)), service_(std::move(service)), path_(std::move(path)) {}

QDBusMessage Accessible::Call(const char* interface, const char* method,
                              const QVariantList& arguments) const {
  QDBusMessage call = QDBusMessage::createMethodCall(service_, path_, QLatin1String(interface),
                                                     QLatin1String(method));
  call.setArguments(arguments);
  return bus_.call(call, QDBus::Block, kCallMs);
}

QVariant Accessible::Property(const char* interface, const char* name) const {
  const QDBusMessage answer = Call("org.freedesktop.DBus.Properties", "Get",
                                   {QLatin1String(interface), QLatin1String(name)});
  if (answer.type() != QDBusMessage::ReplyMessage || answer.arguments().isEmpty()) return {};
  return answer.arguments().first().value<QDBusVariant>().variant();
}

QString Accessible::name() const { return Property(kAccessible, "Name").toString(); }

QString Accessible::role() const {
  const QDBusReply<QString> role = Call(kAccessible, "GetRoleName");
  return role.isValid() ? role.value() : QString();
}

std::vector<Accessible> Accessible::children() const {
  const QDBusMessage answer = Call(kAccessible, "GetChildren");
  if (answer.type() != QDBusMessage::ReplyMessage || answer.arguments().isEmpty()) return {};
  std::vector<Accessible> found;
  const auto list = answer.arguments().first().value<QDBusArgument>();
  list.beginArray();
  while (!list.atEnd()) {
    QString service;
    QDBusObjectPath path;
    list.beginStructure();
    list >> service >> path;
    list.endStructure();
    found.emplace_back(bus_, service, path.path());
  }
  list.endArray();
  return found;
}

QString Accessible::text() const {
  const QDBusReply<QString> text = Call("org.a11y.atspi.Text", "GetText", {0, -1});
  return text.isValid() ? text.value() : QString();
}

quint64 Accessible::states() const {
  const QDBusMessage answer = Call(kAccessible, "GetState");
  if (answer.type() != QDBusMessage::ReplyMessage || answer.arguments().isEmpty()) return 0;
  QList<uint> words;
  answer.arguments().first().value<QDBusArgument>() >> words;
  quint64 states = 0;
  for (int i = 0; i < words.size() && i < 2; ++i) states |= quint64{words[i]} << (32 * i);
  return states;
}

bool Accessible::showing() const { return (states() >> kShowing & 1) != 0; }
bool Accessible::enabled() const { return (states() >> kEnabled & 1) != 0; }
bool Accessible::checked() const { return (states() >> kChecked & 1) != 0; }

bool Accessible::Do(const QString& action) const {
  const int count = Property(kAction, "NActions").toInt();
  for (int i = 0; i < count; ++i) {
    const QDBusReply<QString> name = Call(kAction, "GetName", {i});
    if (!name.isValid() || name.value().compare(action, Qt::CaseInsensitive) != 0) continue;
    const QDBusReply<bool> done = Call(kAction, "DoAction", {i});
    return done.isValid() && done.value();
  }
  return false;
}

bool Accessible::Press() const {
  const QDBusReply<bool> done = Call(kAction, "DoAction", {0});
  return done.isValid() && done.value();
}

bool Accessible::SetText(const QString& text) const {
  const QDBusReply<bool> done = Call("org.a11y.atspi.EditableText", "SetTextContents", {text});
  return done.isValid() && done.value();
}

bool Accessible::Focus() const {
  const QDBusReply<bool> done = Call("org.a11y.atspi.Component", "GrabFocus");
  return done.isValid() && done.value();
}

std::optional<Accessible> Accessible::Find(const Test& test) const {
  for (const Accessible& child : children()) {
    if (!child.showing()) continue;
    if (test(child)) return child;
    if (child.role() == u"table") continue;
    if (auto found = child.Find(test)) return found;
  }
  return std::nullopt;
}

std::optional<Accessible> Accessible::Find(const QString& role, const QString& name) const {
  return Find([&](const Accessible& one) { return one.name() == name && one.role() == role; });
}

std::optional<Accessible> Accessible::Menu(const QStringList& path) const {
  std::optional<Accessible> place =
      Find([](const Accessible& one) { return one.role() == u"menu bar"; });
  // A menu's entries are its children, or children of the popup that it opens.
  const std::function<std::optional<Accessible>(const Accessible&, const QString&)> below =
      [&](const Accessible& parent, const QString& title) -> std::optional<Accessible> {
    for (const Accessible& child : parent.children()) {
      if (child.name() == title && child.role().contains(u"menu item")) return child;
      if (child.role() != u"popup menu" && child.role() != u"menu") continue;
      if (auto found = below(child, title)) return found;
    }
    return std::nullopt;
  };
  for (const QString& title : path) {
    if (!place) break;
    place = below(*place, title);
  }
  return place;
}

QString Accessible::Tree(int depth) const {
  QString text;
  for (const Accessible& child : children()) {
    if (!child.showing()) continue;
    text += QStringLiteral("%1 \"%2\"").arg(child.role(), child.name().left(120));
    text += u'\n';
    if (depth <= 1) continue;
    for (const QString& line : child.Tree(depth - 1).split(u'\n', Qt::SkipEmptyParts)) {
      text += QStringLiteral("  ") + line + u'\n';
    }
  }
  return text;
}

QStringList Accessible::Rows(int max) const {
  constexpr char kTable[] = "org.a11y.atspi.Table";
  const int rows = Property(kTable, "NRows").toInt(),
            columns = Property(kTable, "NColumns").toInt();
  QStringList lines;
  for (int row = 0; row < rows && row < max; ++row) {
    QStringList cells;
    for (int column = 0; column < columns; ++column) {
      const QDBusMessage answer = Call(kTable, "GetAccessibleAt", {row, column});
      if (answer.type() != QDBusMessage::ReplyMessage || answer.arguments().isEmpty()) continue;
      QString service;
      QDBusObjectPath path;
      const auto reference = answer.arguments().first().value<QDBusArgument>();
      reference.beginStructure();
      reference >> service >> path;
      reference.endStructure();
      cells.append(Accessible(bus_, service, path.path()).name());
    }
    lines.append(cells.join(QStringLiteral(" | ")));
  }
  return lines;
}

QStringList Accessible::Columns() const {
  constexpr char kTable[] = "org.a11y.atspi.Table";
  const int columns = Property(kTable, "NColumns").toInt();
  QStringList names;
  for (int column = 0; column < columns; ++column) {
    const QDBusMessage answer = Call(kTable, "GetColumnDescription", {column});
    names.append(answer.arguments().isEmpty() ? QString() : answer.arguments().first().toString());
  }
  return names;
}

std::optional<Accessible> AwaitProgram(const Desktop& desktop, const QString& name,
                                       std::chrono::seconds limit) {
  const Accessible registry(desktop.bus(), QStringLiteral("org.a11y.atspi.Registry"),
                            QStringLiteral("/org/a11y/atspi/accessible/root"));
  std::optional<Accessible> found;
  Eventually(limit, [&] {
    for (const Accessible& program : registry.children()) {
      if (program.name() == name) found = program;
    }
    return found.has_value();
  });
  return found;
}

}  // namespace onepiece::testing
