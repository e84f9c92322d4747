// The window: pages in the middle, tree and inspector at the sides, time below.
//
// Threading  GUI thread only.
#pragma once

#include <QMainWindow>
#include <QPointer>
#include <QStackedWidget>
#include <QTabBar>
#include <QTimer>
#include <functional>
#include <memory>
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

class MainWindow : public QMainWindow {
  Q_OBJECT
 public:
  struct Options {
    SettingsFile settings;
    QString data_folder;      ///< Recordings and the local cluster lie there.
    double base_points = 10;  ///< The font's size at 100 %.
    bool system_is_dark = false;
  };
  MainWindow(Options options, std::unique_ptr<Store> store);
  ~MainWindow() override;

  void Connect(const Target& target);
  /// Opened elsewhere, shown when that is done; an error is said in a dialog.
  void OpenRecording(const QString& path);
  /// Starts the embedded cluster and connects to it.
  void TryLocalCluster();

  [[nodiscard]] Store& store() { return *store_; }
  [[nodiscard]] CommandList& commands() { return *commands_; }
  /// False: there is no such page.
  bool ShowPage(const QString& id);
  [[nodiscard]] View* page() const;
  /// What Ctrl+K offers now.
  [[nodiscard]] std::vector<struct PaletteEntry> PaletteEntries();
  enum class Preset { kOperate, kInvestigate, kWall };
  void SetPreset(Preset preset);

 protected:
  void closeEvent(QCloseEvent* event) override;
  void showEvent(QShowEvent* event) override;
  /// Keys that belong to whatever has the focus, not to a shortcut.
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void MakeBody();
  void MakeDocks();
  QWidget* MakeWelcome();
  QWidget* MakeTour();
  void AddCommands();
  void AddPageCommands();
  void MakeMenus();
  void Restore();
  void SizeDocks();
  void Inspect(const QString& entity);
  void Open(const QString& view_id, const QString& entity);
  void Disconnect();
  /// Sees that the cluster is recorded, and shows its recording.
  void AdoptRecording();
  /// A cluster that has not answered yet is shown as it was recorded last, until it answers.
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
  /// `cli` with the address of the cluster that is shown.
  [[nodiscard]] QString CliLine(const QString& cli) const;

  Options options_;
  std::unique_ptr<Store> store_;
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
  std::int64_t last_recorded_ms_ = 0;  ///< The instant that ShowLastRecorded chose; 0: none.
  std::string adopted_;                ///< The cluster's file, once it was tried.
  std::int64_t adopted_at_ms_ = 0;
  bool adopting_ = false;
  int opening_ = 0;  ///< Grows with everything that is opened.
  bool wide_inspector_ = false;
  bool sized_ = false;  ///< Docks take sizes only once the window has been laid out.
};

}  // namespace onepiece::gui
