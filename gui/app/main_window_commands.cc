// The commands of the window itself, and its menus.
#include <QApplication>
#include <QClipboard>
#include <QDockWidget>
#include <QFileDialog>
#include <QFileInfo>
#include <QMenuBar>
#include <QVBoxLayout>
#include <utility>

#include "cluster/base/status.h"
#include "gui/app/command_palette.h"
#include "gui/app/dialogs.h"
#include "gui/app/export.h"
#include "gui/app/history_dialogs.h"
#include "gui/app/main_window.h"
#include "gui/app/operations_panel.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

/// The CLI's verb that prints what a page shows. Empty if there is none.
QString CliOfPage(const QString& id) {
  if (id == u"overview" || id == u"pipelines" || id == u"gpus")
    return QStringLiteral("onepiece status");
  if (id == u"rings") return QStringLiteral("onepiece rings");
  if (id == u"jobs") return QStringLiteral("onepiece jobs");
  if (id == u"rebalance") return QStringLiteral("onepiece rebalance status");
  if (id == u"replicas") return QStringLiteral("onepiece cluster status");
  if (id == u"logs") return QStringLiteral("onepiece logs --follow");
  if (id == u"audit") return QStringLiteral("onepiece rebalance audit");
  return {};
}

/// Returns a function that adds a command of the window itself.
auto AdderTo(CommandList& commands) {
  return [&commands](const char* id, const QString& title, const char* shortcut,
                     std::function<void()> run) {
    commands.Add({QLatin1String(id), title, {}, QLatin1String(shortcut), false, std::move(run)});
  };
}

}  // namespace

void MainWindow::AddCommands() {
  const auto add = AdderTo(*commands_);
  add("palette", tr("Find a command…"), "Ctrl+K", [this] { RunPalette(); });
  add("connections", tr("Connections…"), "Ctrl+L", [this] { RunConnections(); });
  add("recording.open", tr("Open recording…"), "Ctrl+O", [this] { RunOpenRecording(); });
  add("local.start", tr("Try a local cluster"), "", [this] { TryLocalCluster(); });
  add("local.stop", tr("Stop the local cluster"), "", [this] { local_->Stop(); });
  add("export", tr("Export this page…"), "Ctrl+E", [this] { RunExport(); });
  add("copy-cli", tr("Copy as command line"), "Ctrl+Shift+C", [this] { CopyCli(); });
  add("settings", tr("Settings…"), "Ctrl+,", [this] { RunSettings(); });
  add("quit", tr("Quit"), "Ctrl+Q", [this] { close(); });
  add("resync", tr("Ask for everything anew"), "F5", [this] {
    if (shown_cluster_->session() != nullptr) shown_cluster_->session()->Resync();
    shown_cluster_->AskWhoWeAre();
    scrubber_->Refresh();
  });
  add("control.toggle", tr("Unlock or lock changes"), "Ctrl+Shift+U", [this] {
    const bool observes = shown_cluster_->mode() == ControlMode::kObserve;
    shown_cluster_->SetMode(observes ? ControlMode::kControl : ControlMode::kObserve);
  });
  add("live.pause", tr("Pause or resume"), "Space", [this] { scrubber_->TogglePause(); });
  add("live.go", tr("Go live"), "L", [this] { scrubber_->GoLive(); });
  add("live.before", tr("Previous event"), "Ctrl+Left", [this] { scrubber_->StepToMark(false); });
  add("live.after", tr("Next event"), "Ctrl+Right", [this] { scrubber_->StepToMark(true); });
  add("bookmark", tr("Bookmark this instant…"), "Ctrl+B", [this] { RunBookmark(); });
  add("pin", tr("Pin this instant to compare with"), "Ctrl+Shift+P",
      [this] { shown_cluster_->Pin(shown_cluster_->snapshot()); });
  add("compare", tr("Compare with the pinned instant"), "Ctrl+Shift+D", [this] { RunCompare(); });
  add("unpin", tr("Stop comparing"), "", [this] {
    shown_cluster_->Pin(nullptr);
    if (compare_ != nullptr) compare_->close();
  });
  commands_->Add({QStringLiteral("recording.export"),
                  tr("Export a part of the recording…"),
                  QStringLiteral("onepiece show --file FILE --export NEW-FILE --from -15m"),
                  {},
                  false,
                  [this] { RunExportRange(); }});
  add("operations", tr("Operations"), "Alt+1", [this] {
    const bool show = !operations_dock_->isVisible();
    operations_dock_->setVisible(show);
    if (show) operations_->setFocus();
  });
  add("filter", tr("Filter this page"), "/", [this] {
    band_->filter()->setFocus();
    band_->filter()->selectAll();
  });
  add("clear", tr("Clear the filter and the selection"), "Esc", [this] {
    band_->filter()->clear();
    inspector_->Inspect({});
    tree_->setCurrentItem(nullptr);
    pages_->currentWidget()->setFocus();
  });
  add("pane.next", tr("Next pane"), "F6", [this] { CyclePane(); });
  AddLayoutCommands();
  add("help", tr("Help on this page"), "F1", [this] { RunHelp(); });
  add("shortcuts", tr("Shortcuts"), "?", [this] { RunHelp(); });
  add("tour", tr("Show the tour"), "", [this] {
    show_tour_step_(0);
    tour_->show();
  });
}

void MainWindow::AddLayoutCommands() {
  const auto add = AdderTo(*commands_);
  add("fullscreen", tr("Full screen"), "F11",
      [this] { setWindowState(windowState() ^ Qt::WindowFullScreen); });
  add("layout.operate", tr("Layout: Operate"), "", [this] { SetPreset(Preset::kOperate); });
  add("layout.investigate", tr("Layout: Investigate"), "",
      [this] { SetPreset(Preset::kInvestigate); });
  add("layout.wall", tr("Layout: Wall"), "", [this] { SetPreset(Preset::kWall); });
  add("layout.reset", tr("Reset layout"), "", [this] { SetPreset(Preset::kOperate); });
}

void MainWindow::AddPageCommands() {
  int number = 1;
  for (View* view : views_) {
    const QString key = number <= 9 ? QStringLiteral("Ctrl+%1").arg(number) : QString();
    commands_->Add({QStringLiteral("page.") + view->id(), tr("Page: %1").arg(view->title()),
                    CliOfPage(view->id()), key, false, [this, id = view->id()] { ShowPage(id); }});
    ++number;
  }
  for (View* view : views_) {
    for (Command& command : view->Commands()) commands_->Add(std::move(command), view);
  }
}

void MainWindow::MakeMenus() {
  auto* bar = new QMenuBar(this);
  bar->setAccessibleName(tr("Menus"));
  const auto menu = [&](const QString& title, const QStringList& ids) {
    QMenu* made = bar->addMenu(title);
    for (const QString& id : ids) {
      if (id.isEmpty()) {
        made->addSeparator();
      } else {
        made->addAction(commands_->Action(id));
      }
    }
    made->setToolTipsVisible(true);
    return made;
  };
  menu(tr("&File"), {QStringLiteral("connections"),
                     QStringLiteral("recording.open"),
                     QStringLiteral("local.start"),
                     QStringLiteral("local.stop"),
                     {},
                     QStringLiteral("export"),
                     QStringLiteral("recording.export"),
                     QStringLiteral("copy-cli"),
                     {},
                     QStringLiteral("settings"),
                     {},
                     QStringLiteral("quit")});
  QStringList pages;
  for (const View* view : views_) pages << QStringLiteral("page.") + view->id();
  menu(tr("&View"), pages + QStringList{QString(),
                                        QStringLiteral("filter"),
                                        QStringLiteral("clear"),
                                        QStringLiteral("resync"),
                                        {},
                                        QStringLiteral("operations"),
                                        {},
                                        QStringLiteral("layout.operate"),
                                        QStringLiteral("layout.investigate"),
                                        QStringLiteral("layout.wall"),
                                        QStringLiteral("layout.reset"),
                                        {},
                                        QStringLiteral("pane.next"),
                                        QStringLiteral("fullscreen")});
  menu(tr("&Time"), {QStringLiteral("live.pause"),
                     QStringLiteral("live.go"),
                     QStringLiteral("live.before"),
                     QStringLiteral("live.after"),
                     {},
                     QStringLiteral("bookmark"),
                     QStringLiteral("pin"),
                     QStringLiteral("compare"),
                     QStringLiteral("unpin")});
  QStringList changes = {QStringLiteral("control.toggle"), QString()};
  for (const CommandEntry& entry : commands_->entries()) {
    if (entry.view != nullptr) changes << entry.command.id;
  }
  menu(tr("&Cluster"), changes);
  menu(tr("&Help"), {QStringLiteral("help"), QStringLiteral("shortcuts"), QStringLiteral("palette"),
                     QStringLiteral("tour")});
  auto* top = new QWidget(this);
  auto* layout = new QVBoxLayout(top);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(0);
  layout->addWidget(bar);
  layout->addWidget(band_);
  layout->addWidget(tabs_);
  setMenuWidget(top);
}

std::vector<PaletteEntry> MainWindow::PaletteEntries() {
  std::vector<PaletteEntry> found;
  for (const CommandEntry& entry : commands_->entries()) {
    const Command& command = entry.command;
    if (command.id == u"palette") continue;
    found.push_back({command.title, command.shortcut, CliLine(command.cli),
                     commands_->WhyNot(command), [this, id = command.id] { commands_->Run(id); }});
  }
  for (const QString& entity : tree_->Entities()) {
    if (entity.startsWith(u"group/")) continue;
    found.push_back(
        {SafeText(entity.toStdString(), 80), {}, {}, {}, [this, entity] { Inspect(entity); }});
  }
  return found;
}

QString MainWindow::CliLine(const QString& cli) const {
  if (cli.isEmpty() || shown_cluster_->session() == nullptr) return cli;
  QStringList addresses;
  for (const std::string& address : shown_cluster_->session()->target().nodemanagers) {
    addresses << QString::fromStdString(address);
  }
  return cli + QStringLiteral(" --nodemanager ") + addresses.join(u',');
}

void MainWindow::RunPalette() {
  CommandPalette dialog(PaletteEntries(), this);
  // The palette is closed when the command runs, because a command may open a dialog of its own.
  if (dialog.exec() == QDialog::Accepted && dialog.chosen()) dialog.chosen()();
}

void MainWindow::RunConnections() {
  ConnectionsDialog dialog(options_.settings.values.connections, options_.contexts_path, *local_,
                           this);
  // Queued, so that the file dialog opens after the exec() below has returned.
  connect(&dialog, &ConnectionsDialog::OpenRecording, this, &MainWindow::RunOpenRecording,
          Qt::QueuedConnection);
  const bool chosen = dialog.exec() == QDialog::Accepted && dialog.chosen().has_value();
  options_.settings.values.connections = dialog.connections();
  SaveSettings();
  if (chosen) Connect(dialog.chosen()->cluster, dialog.chosen()->credentials);
}

void MainWindow::RunOpenRecording() {
  const QString path = QFileDialog::getOpenFileName(
      this, tr("Open recording"), options_.data_folder + QStringLiteral("/recordings"),
      tr("Recordings (*.onepiece-recording);;All files (*)"));
  if (!path.isEmpty()) OpenRecording(path);
}

void MainWindow::RunSettings() {
  SettingsDialog dialog(options_.settings.values, *commands_, this);
  if (dialog.exec() != QDialog::Accepted) return;
  // A theme that the operator has chosen just now ends the one that this run was started with.
  if (dialog.settings().theme != options_.settings.values.theme) options_.theme.reset();
  options_.settings.values = dialog.settings();
  commands_->SetShortcuts(options_.settings.values.shortcuts);
  options_.ApplyLook();
  SaveSettings();
}

void MainWindow::RunHelp() {
  HelpDialog dialog(page()->title(), page()->Help(), *commands_, this);
  dialog.exec();
}

void MainWindow::RunExport() {
  const QString path =
      QFileDialog::getSaveFileName(this, tr("Export %1").arg(page()->title()),
                                   QDir::home().filePath(page()->id() + QStringLiteral(".csv")),
                                   tr("Table (*.csv *.json);;Picture (*.png *.svg)"));
  if (path.isEmpty()) return;
  const absl::Status written = ExportView(*page(), path);
  if (!written.ok()) Say(tr("Not exported"), SafeText(base::Message(written), 1000));
}

void MainWindow::CopyCli() {
  const QString line = CliLine(CliOfPage(page()->id()));
  if (line.isEmpty())
    return Say(tr("Copy as command line"), tr("No verb of the command line shows this page."));
  QApplication::clipboard()->setText(line);
}

void MainWindow::CyclePane() {
  const std::vector<QWidget*> panes = {tree_,       pages_->currentWidget(), inspector_,
                                       operations_, scrubber_->line(),       band_->filter()};
  std::size_t now = panes.size() - 1;
  for (std::size_t i = 0; i < panes.size(); ++i) {
    if (panes[i] == focusWidget() || panes[i]->isAncestorOf(focusWidget())) now = i;
  }
  for (std::size_t step = 1; step <= panes.size(); ++step) {
    QWidget* pane = panes[(now + step) % panes.size()];
    if (!pane->isVisible() || !pane->isEnabled()) continue;
    if (pane->focusPolicy() == Qt::NoFocus) {
      for (QWidget* child : pane->findChildren<QWidget*>()) {
        if (child->focusPolicy() != Qt::NoFocus && child->isVisible() && child->isEnabled()) {
          pane = child;
          break;
        }
      }
    }
    return pane->setFocus(Qt::TabFocusReason);
  }
}

}  // namespace onepiece::gui
