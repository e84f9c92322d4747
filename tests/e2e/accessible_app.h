// A program seen and driven as a screen reader does it: over AT-SPI's D-Bus interfaces, with
// nothing from inside it.
//
// Source: https://gitlab.gnome.org/GNOME/at-spi2-core, xml/*.xml (interfaces org.a11y.atspi.*).
// Threading: Thread-confined.
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
  /// Why it does not run; empty: it does.
  [[nodiscard]] const QString& error() const { return error_; }
  /// For programs that shall appear on it.
  [[nodiscard]] QProcessEnvironment environment() const;
  /// What is on the screen now, as a PNG.
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

/// One thing that a screen reader can name. A value: it may be gone when it is asked.
class Accessible {
 public:
  Accessible(QDBusConnection bus, QString service, QString path);

  [[nodiscard]] QString name() const;
  /// "push button", "label", "table cell", "list item", "menu item", "text", …
  [[nodiscard]] QString role() const;
  [[nodiscard]] std::vector<Accessible> children() const;
  /// Of a text field or label.
  [[nodiscard]] QString text() const;
  [[nodiscard]] bool showing() const;
  [[nodiscard]] bool enabled() const;
  [[nodiscard]] bool checked() const;
  /// False: it was not taken.
  bool Do(const QString& action) const;
  /// Its first action: "Press", "ShowMenu", "Toggle".
  bool Press() const;
  bool SetText(const QString& text) const;
  bool SetValue(double value) const;
  bool Focus() const;

  using Test = std::function<bool(const Accessible&)>;
  /// The first one in it, in depth, that shows and passes; nothing below tables is looked at unless
  /// this is one.
  [[nodiscard]] std::optional<Accessible> Find(const Test& test) const;
  [[nodiscard]] std::optional<Accessible> Find(const QString& role, const QString& name) const;
  /// An entry of its menus, by its title and those of the menus above it, shown or not.
  [[nodiscard]] std::optional<Accessible> Menu(const QStringList& path) const;
  /// All that show, one a line, indented: for a failed test's report.
  [[nodiscard]] QString Tree(int depth = 12) const;
  /// Of a table: its rows from the first, their cells joined by " | "; at most `max`.
  [[nodiscard]] QStringList Rows(int max = 30) const;
  /// Of a table: the names of its columns.
  [[nodiscard]] QStringList Columns() const;

 private:
  [[nodiscard]] QVariant Property(const char* interface, const char* name) const;
  QDBusMessage Call(const char* interface, const char* method,
                    const QVariantList& arguments = {}) const;
  [[nodiscard]] quint64 states() const;

  QDBusConnection bus_;
  QString service_, path_;
};

/// The program `name` on the desktop's accessibility bus; nullopt: not within `limit`.
std::optional<Accessible> AwaitProgram(const Desktop& desktop, const QString& name,
                                       std::chrono::seconds limit);

}  // namespace onepiece::testing
