// The program `onepiece-console`: the window on a cluster.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <QApplication>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/shutdown.h"
#include "cluster/base/status.h"
#include "cluster/contexts/contexts.h"
#include "cluster/local/control.h"
#include "cluster/local/identities.h"
#include "cluster/service/options.h"
#include "gui/app/connection.h"
#include "gui/app/main_window.h"
#include "gui/app/theme.h"

namespace {

using namespace onepiece;

struct Arguments {
  std::vector<std::string> nodemanagers;
  std::string identity, context;
  std::string data_dir, recording, settings, theme;
};

/// Whether Qt finds a display. Without one Qt calls abort(), so a child process tries it.
bool HasDisplay(int argc, char** argv) {
  const pid_t child = fork();
  if (child < 0) return true;
  if (child == 0) {
    const rlimit no_core{};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(20);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
    const QGuiApplication probe(argc, argv);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::optional<gui::Theme> ThemeOf(const std::string& name) {
  if (name == "system") return gui::Theme::kSystem;
  if (name == "light") return gui::Theme::kLight;
  if (name == "dark") return gui::Theme::kDark;
  if (name == "high-contrast") return gui::Theme::kHighContrast;
  return std::nullopt;
}

/// Connects to the cluster that was used last. False if it is not known any more.
bool ConnectLast(gui::MainWindow& window, const gui::Settings& settings,
                 const std::string& contexts_path) {
  const std::string name = settings.last_connection.toStdString();
  const auto own = std::ranges::find_if(
      settings.connections,
      [&](const gui::Connection& connection) { return connection.cluster.name == name; });
  if (own != settings.connections.end()) {
    window.Connect(own->cluster, own->credentials);
    return true;
  }
  const auto context =
      name.empty() ? absl::NotFoundError("") : gui::FindContext(contexts_path, name);
  if (context.ok()) window.Connect(context->cluster, context->credentials);
  return context.ok();
}

/// Connects to what the flags name. Otherwise to the cluster that was used last, to that of the
/// current context, or to the one that `onepiece up` has started here. Otherwise to nothing.
void ConnectFirst(gui::MainWindow& window, const Arguments& arguments,
                  const gui::Settings& settings, const std::string& contexts_path) {
  if (!arguments.recording.empty()) {
    window.OpenRecording(QString::fromStdString(arguments.recording));
  } else if (!arguments.nodemanagers.empty()) {
    window.Connect({arguments.nodemanagers.front(), arguments.nodemanagers, false},
                   gui::IdentityIn(arguments.identity));
  } else if (!arguments.context.empty()) {
    window.ConnectContext(arguments.context);
  } else if (!arguments.data_dir.empty()) {
    const auto state = local::FindCluster(arguments.data_dir);
    if (state.ok()) {
      window.Connect({state->cluster_id, state->nodemanagers, false},
                     gui::IdentityIn(state->identity));
    } else {
      std::cerr << "onepiece-console: " << base::Message(state.status()) << std::endl;
    }
  } else {
    if (ConnectLast(window, settings, contexts_path)) return;
    const auto current = gui::FindContext(contexts_path, "");
    if (current.ok()) return window.Connect(current->cluster, current->credentials);
    const auto here = local::FindCluster(service::DefaultStateDir());
    if (!here.ok()) return;
    window.Connect({here->cluster_id, here->nodemanagers, false}, gui::IdentityIn(here->identity));
  }
}

void AddOptions(CLI::App& flags, Arguments& arguments) {
  flags.set_version_flag("--version", "onepiece-console " ONEPIECE_VERSION);
  flags
      .add_option("--nodemanager", arguments.nodemanagers,
                  "The cluster's NodeManagers (host:port,…)")
      ->envname("ONEPIECE_NODEMANAGER")
      ->delimiter(',')
      ->allow_extra_args(false);
  flags
      .add_option("--identity", arguments.identity,
                  "Folder of the client certificate for --nodemanager")
      ->envname("ONEPIECE_IDENTITY");
  flags
      .add_option("--context", arguments.context,
                  "The cluster of this context (see `onepiece context list`)")
      ->envname("ONEPIECE_CONTEXT");
  flags.add_option("--data-dir", arguments.data_dir, "The embedded cluster of this directory")
      ->envname("ONEPIECE_DATA_DIR");
  flags.add_option("--open,recording", arguments.recording,
                   "A recording to look at, without a cluster");
  flags.add_option("--settings", arguments.settings, "Settings file instead of the user's own");
  flags.add_option("--theme", arguments.theme, "The theme of this run. The settings keep theirs")
      ->check(CLI::IsMember({"system", "light", "dark", "high-contrast"}));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App flags{"OnePiece console: watch a cluster and move it", "onepiece-console"};
  Arguments arguments;
  AddOptions(flags, arguments);
  try {
    flags.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return flags.exit(success);
  } catch (const CLI::ParseError& error) {
    std::cerr << "onepiece-console: " << error.what() << "\nRun `onepiece-console --help`.\n";
    return 2;
  }
  if (!HasDisplay(argc, argv)) {
    std::cerr << "onepiece-console: there is no display to open a window on. Run it on a desktop, "
                 "or set DISPLAY "
                 "(ssh -X). Without one, `onepiece status`, `onepiece jobs` and `onepiece rings` "
                 "show the cluster.\n";
    return 1;
  }
  local::PrepareCalls();
  // This must come before any thread starts: threads inherit the blocked signals, and only `ender`
  // waits for them.
  base::ShutdownSignals signals;
  QApplication::setStyle(new gui::ConsoleStyle);
  QApplication app(argc, argv);
  QApplication::setApplicationName(QStringLiteral("onepiece-console"));
  QApplication::setApplicationDisplayName(QStringLiteral("OnePiece Console"));
  QApplication::setApplicationVersion(QStringLiteral(ONEPIECE_VERSION));
  QGuiApplication::setDesktopFileName(QStringLiteral("onepiece-console"));

  gui::MainWindowOptions options;
  options.settings = gui::SettingsFile::Load(arguments.settings.empty()
                                                 ? gui::DefaultSettingsPath()
                                                 : QString::fromStdString(arguments.settings));
  options.theme = ThemeOf(arguments.theme);
  options.data_folder = gui::DataFolder();
  options.contexts_path = contexts::DefaultPath();
  options.base_points = QApplication::font().pointSizeF();
  options.system_is_dark = gui::SystemPrefersDark(QApplication::palette());
  const gui::Settings settings = options.settings.values;
  const std::string contexts_path = options.contexts_path;
  options.ApplyLook();
  gui::MainWindow window(std::move(options), std::make_unique<gui::ShownCluster>());
  // It comes after the window, so that it is joined before the window is destroyed.
  const std::jthread ender([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      // A signal closes the window as the operator would, so that settings are saved and the local
      // cluster ends.
      if (!signals.WaitFor(std::chrono::milliseconds(200)).has_value()) continue;
      QMetaObject::invokeMethod(&window, &QWidget::close, Qt::QueuedConnection);
    }
  });
  window.show();
  ConnectFirst(window, arguments, settings, contexts_path);
  return QApplication::exec();
}
