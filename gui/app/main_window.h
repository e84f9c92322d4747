// The window: the pages in the middle, the entity tree and the inspector at the sides, the time
// line below.
//
// Threading: GUI thread only.
#pragma once

#include <QMainWindow>
#include <QPointer>
#include <QStackedWidget>
#include <QTabBar>
#include <QTimer>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gui/app/bands.h"
#include "gui/app/commands.h"
#include "gui/app/local_cluster.h"
#include "gui/app/scrubber.h"
#include "gui/app/settings.h"
#include "gui/app/side_panels.h"
#include "gui/views/view.h"

namespace onepiece::gui {

class CompareDialog;
class OperationsPanel;
class RecordingService;

/// What a MainWindow needs to know at its start.
struct MainWindowOptions {
  SettingsFile settings;
  /// The theme of this run, which is not saved. Without it the settings' theme holds.
  std::optional<Theme> theme;
  QString data_folder;  ///< Recordings and the local cluster are kept here.
  /// The file of `onepiece context`. Empty: without contexts.
  std::string contexts_path;
  double base_points = 10;  ///< The font size at 100 %.
  bool system_is_dark = false;

  /// Gives the application its palette, font and animations.
  void ApplyLook() const;
};

/// The window. It connects to clusters, opens recordings, and wires pages, panels and commands
/// together.
class MainWindow : public QMainWindow {
  Q_OBJECT
 public:
  MainWindow(MainWindowOptions options, std::unique_ptr<ShownCluster> shown_cluster);
  ~MainWindow() override;

  /// Leaves the present cluster or recording and follows another cluster, with this login. Without
  /// one the cluster is insecure.
  void Connect(const session::ClusterAddress& target, const contexts::Credentials& login = {});
  /// Follows the cluster of a context; an empty name: of the current one. When there is none, a
  /// dialog says what to do.
  void ConnectContext(const std::string& name);
  /// Opens a recording off the GUI thread, and shows it when that is done. An error is shown in a
  /// dialog.
  void OpenRecording(const QString& path);
  /// Starts the embedded cluster and connects to it.
  void TryLocalCluster();

  [[nodiscard]] ShownCluster& shown_cluster() { return *shown_cluster_; }
  [[nodiscard]] CommandList& commands() { return *commands_; }
  /// Shows a page. False if there is no page with this id.
  bool ShowPage(const QString& id);
  [[nodiscard]] View* page() const;
  /// What the dialog of Ctrl+K offers now.
  [[nodiscard]] std::vector<struct PaletteEntry> PaletteEntries();
  enum class Preset { kOperate, kInvestigate, kWall };
  void SetPreset(Preset preset);

 protected:
  void closeEvent(QCloseEvent* event) override;
  void showEvent(QShowEvent* event) override;
  /// Lets the focused widget have keys that would otherwise be a shortcut.
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void MakeBody();
  void MakeDocks();
  QWidget* MakeWelcome();
  QWidget* MakeTour();
  void AddCommands();
  void AddLayoutCommands();
  void AddPageCommands();
  void MakeMenus();
  void Restore();
  void SizeDocks();
  void Inspect(const QString& entity);
  void Open(const QString& view_id, const QString& entity);
  void Disconnect();
  /// Makes sure that the cluster is recorded, and shows its recording in the time line. A timer
  /// calls it.
  void AdoptRecording();
  /// Shows the last recorded instant of a cluster that has not answered yet. Goes live when it
  /// answers.
  void ShowLastRecorded();
  void RunBookmark();
  void RunCompare();
  void RunExportRange();
  void ExportRange(const std::string& from, history::Interval part, const QString& path);
  void UpdateWelcome();
  void SaveSettings();
  void Say(const QString& title, const QString& text);
  void RunPalette();
  void RunConnections();
  void RunSettings();
  void RunHelp();
  void RunExport();
  void RunOpenRecording();
  void CopyCli();
  void CyclePane();
  /// `cli` with the address of the connected cluster.
  [[nodiscard]] QString CliLine(const QString& cli) const;

  MainWindowOptions options_;
  std::unique_ptr<ShownCluster> shown_cluster_;
  std::shared_ptr<RecordingService> recorder_;
  std::unique_ptr<LocalCluster> local_;
  CommandList* commands_;
  TopBand* band_;
  QTabBar* tabs_;
  QStackedWidget *body_, *pages_;
  QWidget *welcome_ = nullptr, *tour_ = nullptr;
  std::function<void(int step)> show_tour_step_;
  std::vector<View*> views_;
  Scrubber* scrubber_;
  EntityTree* tree_ = nullptr;
  Inspector* inspector_ = nullptr;
  OperationsPanel* operations_ = nullptr;
  QDockWidget *tree_dock_ = nullptr, *inspector_dock_ = nullptr, *operations_dock_ = nullptr;
  QPointer<CompareDialog> compare_;
  QTimer adopt_;
  std::int64_t last_recorded_ms_ = 0;  ///< The instant that ShowLastRecorded() shows. 0 for none.
  std::string adopted_;                ///< The cluster's file, once recording into it was tried.
  std::int64_t adopted_at_ms_ = 0;
  /// The ShownCluster::connection() whose file is being opened. 0 if none is.
  int adopting_for_ = 0;
  /// Grows with each cluster or recording opened, so that late answers are dropped.
  int opening_ = 0;
  bool wide_inspector_ = false;
  bool sized_ = false;  ///< Docks keep sizes only after the window has been laid out.
};

}  // namespace onepiece::gui
