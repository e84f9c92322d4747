// The dialogs about the recording: set a bookmark, export a part of the recording, and compare two
// instants.
//
// Threading: GUI thread only.
// Blocking: no call blocks. Answers come to callbacks.
#pragma once

#include <QDialog>
#include <QLabel>
#include <QTimer>
#include <functional>
#include <memory>

#include "cluster/history/compare.h"
#include "cluster/history/recording.h"
#include "gui/models/keyed_table.h"
#include "gui/models/shown_cluster.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

/// Asks for the text of a bookmark at `at_ms`. Calls `yes` if the operator accepts. An empty input
/// becomes "bookmark".
///
/// Ownership: `parent` owns the dialog, which deletes itself when it closes. `yes` is then dropped.
void AskBookmark(QWidget* parent, std::int64_t at_ms, std::function<void(const QString& text)> yes);

/// Asks which part of the recording to export, and into which file. `seen` is the interval that the
/// time line shows. `all` is the interval of the whole recording. `folder` is where the proposed
/// file lies. Calls `yes` if the operator accepts with a path. It does not check whether the file
/// exists.
///
/// Ownership: as AskBookmark().
void AskExport(QWidget* parent, history::Interval seen, history::Interval all,
               const QString& folder,
               std::function<void(history::Interval part, const QString& path)> yes);

/// Shows the differences between the pinned instant and the shown instant. While it is open, it is
/// updated when either instant changes.
///
/// Ownership: it deletes itself when it closes. `shown_cluster` must outlive it.
class CompareDialog : public QDialog {
  Q_OBJECT
 public:
  CompareDialog(ShownCluster& shown_cluster, QWidget* parent);
  [[nodiscard]] TablePanel* panel() const { return panel_; }

 Q_SIGNALS:
  /// The operator has opened a row. `entity` is that row's Difference::entity.
  void Opened(const QString& entity);

 private:
  void Look();

  ShownCluster& shown_cluster_;
  std::unique_ptr<KeyedTable<history::Difference>> table_;
  QLabel* head_;
  TablePanel* panel_;
  QTimer look_;  ///< Checks every second whether one of the two snapshots has changed.
  std::shared_ptr<const session::Snapshot> from_, to_;  ///< The last two that were compared.
  bool looking_ = false;  ///< A comparison runs on another thread. There is one at a time.
};

}  // namespace onepiece::gui
