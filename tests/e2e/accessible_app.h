// Sees and drives a program as a screen reader does: over AT-SPI's D-Bus interfaces, without any
// access to its inside.
//
// Source: https://gitlab.gnome.org/GNOME/at-spi2-core, xml/*.xml (interfaces org.a11y.atspi.*).
//
// Threading: thread-confined.
//
// Blocking: every call waits for the program, 5 s at most.
#pragma once

#include <QDBusConnection>
#include <QProcess>
#include <QString>
#include <QTemporaryDir>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace onepiece::testing {

/// An X server without a screen, a session bus and the accessibility bus, of this test alone.
class Desktop {
 public:
  Desktop(int width, int height);
  ~Desktop();
  Desktop(const Desktop&) = delete;
  Desktop& operator=(const Desktop&) = delete;
  /// Returns why it does not run. Empty if it runs.
  [[nodiscard]] const QString& error() const { return error_; }
  /// Returns the environment for programs that shall appear on it.
  [[nodiscard]] QProcessEnvironment environment() const;
  /// Writes the screen's present content to `path`, as a PNG.
  bool Save(const QString& path) const;
  [[nodiscard]] const QDBusConnection& bus() const { return bus_; }

 private:
  bool StartDisplay(int width, int height);
  bool StartBuses();

  QTemporaryDir folder_;
  QProcess display_, session_;
  QString display_name_, session_address_, error_;
  QDBusConnection bus_{QString()};
};

/// One thing that a screen reader can name. A value type: the thing may be gone when a method asks
/// it.
class Accessible {
 public:
  Accessible(QDBusConnection bus, QString service, QString path);

  [[nodiscard]] QString name() const;
  /// "push button", "label", "table cell", "list item", "menu item", "text", …
  [[nodiscard]] QString role() const;
  [[nodiscard]] std::vector<Accessible> children() const;
  /// The text of a text field or label.
  [[nodiscard]] QString text() const;
  [[nodiscard]] bool showing() const;
  [[nodiscard]] bool enabled() const;
  [[nodiscard]] bool checked() const;
  /// Returns false if the program did not take it.
  bool Do(const QString& action) const;
  /// Does its first action: "Press", "ShowMenu", "Toggle".
  bool Press() const;
  bool SetText(const QString& text) const;
  bool Focus() const;

  using Test = std::function<bool(const Accessible&)>;
  /// Returns the first descendant, depth first, that shows and passes. Does not look below tables,
  /// unless this is one.
  [[nodiscard]] std::optional<Accessible> Find(const Test& test) const;
  [[nodiscard]] std::optional<Accessible> Find(const QString& role, const QString& name) const;
  /// Returns an entry of its menus, shown or not, by its title and those of the menus above it.
  [[nodiscard]] std::optional<Accessible> Menu(const QStringList& path) const;
  /// Returns all descendants that show, one a line and indented, for a failed test's report.
  [[nodiscard]] QString Tree(int depth = 12) const;
  /// Returns the first rows of a table, at most `max`, with cells joined by " | ".
  [[nodiscard]] QStringList Rows(int max = 30) const;
  /// Returns the names of a table's columns.
  [[nodiscard]] QStringList Columns() const;

 private:
  [[nodiscard]] QVariant Property(const char* interface, const char* name) const;
  QDBusMessage Call(const char* interface, const char* method,
                    const QVariantList& arguments = {}) const;
  [[nodiscard]] quint64 states() const;

  QDBusConnection bus_;
  QString service_, path_;
};

/// Returns the program `name` on the desktop's accessibility bus, or nullopt if it does not appear
/// within `limit`.
std::optional<Accessible> AwaitProgram(const Desktop& desktop, const QString& name,
                                       std::chrono::seconds limit);

}  // namespace onepiece::testing
