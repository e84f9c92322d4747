// The console on a real cluster, seen and driven as a screen reader does it: connect, submit, watch
// the stages and the ring, plan and apply a rebalance, undo it, kill an instance, look back.
#include <signal.h>

#include "tests/e2e/cluster_under_test.h"
#include "tests/gui/accessible_app.h"

namespace onepiece::e2e {
namespace {

using std::chrono::seconds;
using testing::Accessible;

/// The console as a program, on a desktop of this test.
class Console {
 public:
  Console(const testing::Desktop& desktop, const std::string& home) : desktop_(desktop) {
    QProcessEnvironment environment = desktop.environment();
    for (const char* name : {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"}) {
      environment.insert(QLatin1String(name), QString::fromStdString(home));
    }
    environment.insert(QStringLiteral("ONEPIECE_BIN_DIR"),
                       QStringLiteral(ONEPIECE_BINARY_DIR "/bin"));
    process_.setProcessEnvironment(environment);
    process_.setProcessChannelMode(QProcess::ForwardedChannels);
  }
  ~Console() {
    if (process_.state() == QProcess::NotRunning) return;
    process_.kill();
    process_.waitForFinished();
  }

  bool Start(const QStringList& arguments) {
    process_.start(QStringLiteral(ONEPIECE_BINARY_DIR "/bin/onepiece-console"), arguments);
    if (!process_.waitForStarted()) return false;
    app_ = testing::AwaitProgram(desktop_, QStringLiteral("onepiece-console"), seconds(30));
    return app_.has_value();
  }
  /// As a window is closed; false: it does not end, or not well.
  bool End() {
    process_.terminate();
    return process_.waitForFinished(10'000) && process_.exitStatus() == QProcess::NormalExit &&
           process_.exitCode() == 0;
  }
  [[nodiscard]] QProcess& process() { return process_; }
  [[nodiscard]] const Accessible& app() const { return *app_; }

  /// Something of this role whose name contains `name` is there within `limit`.
  [[nodiscard]] std::optional<Accessible> Await(const QString& role, const QString& name,
                                                seconds limit = seconds(20)) const {
    std::optional<Accessible> found;
    testing::Eventually(limit, [&] {
      found = app_->Find(
          [&](const Accessible& one) { return one.name().contains(name) && one.role() == role; });
      return found.has_value();
    });
    return found;
  }
  /// Presses the button of this name once it can be pressed.
  [[nodiscard]] bool Press(const QString& name, const QString& role = "push button") const {
    return testing::Eventually(seconds(20), [&] {
      const auto button = app_->Find(role, name);
      return button && button->enabled() && button->Press();
    });
  }
  /// A menu's entry.
  [[nodiscard]] bool Run(const QStringList& path) const {
    return testing::Eventually(seconds(10), [&] {
      const auto entry = app_->Menu(path);
      return entry && entry->enabled() && entry->Press();
    });
  }

 private:
  const testing::Desktop& desktop_;
  QProcess process_;
  std::optional<Accessible> app_;
};

}  // namespace

class ConsoleTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { QVERIFY2(desktop_.error().isEmpty(), qPrintable(desktop_.error())); }

  void LocalCluster_StartsAndStops() {
    const QTemporaryDir home;
    Console console(desktop_, home.path().toStdString());
    QVERIFY(console.Start({}));
    QVERIFY(console.Await("label", "No cluster configured"));
    QVERIFY(console.Press("Try a local cluster"));
    QVERIFY2(console.Await("label", "● Live", seconds(90)), qPrintable(console.app().Tree()));
    QVERIFY2(console.Await("push button", "Nodes: 9 up"), qPrintable(console.app().Tree()));
    QVERIFY(console.Run({"File", "Stop the local cluster"}));
    QVERIFY2(console.Await("label", "Not connected"), qPrintable(console.app().Tree()));
    QVERIFY(console.End());
  }

 private:
  testing::Desktop desktop_{1280, 800};
};

}  // namespace onepiece::e2e

QTEST_GUILESS_MAIN(onepiece::e2e::ConsoleTest)
#include "console_test.moc"
