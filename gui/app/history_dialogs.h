// The dialogs about the recording: the text of a bookmark, the export of a part, and the difference
// between two instants.
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

/// Asks for the text of a bookmark. Calls `yes` if the operator accepts.
void AskBookmark(QWidget* parent, std::int64_t at_ms, std::function<void(const QString& text)> yes);

/// Asks which part of the recording to export, and into which file. `seen` is the part that the
/// time line shows, `all` the whole recording.
void AskExport(QWidget* parent, history::Interval seen, history::Interval all,
               const QString& folder,
               std::function<void(history::Interval part, const QString& path)> yes);

/// The difference between the pinned instant and the shown one. It follows both while it is open.
class CompareDialog : public QDialog {
  Q_OBJECT
 public:
  CompareDialog(ShownCluster& shown_cluster, QWidget* parent);
  [[nodiscard]] TablePanel* panel() const { return panel_; }

 Q_SIGNALS:
  void Opened(const QString& entity);

 private:
  void Look();

  ShownCluster& shown_cluster_;
  std::unique_ptr<KeyedTable<history::Difference>> table_;
  QLabel* head_;
  TablePanel* panel_;
  QTimer look_;  ///< Compares at most once a second: two large snapshots take time to compare.
  std::shared_ptr<const session::Snapshot> from_, to_;
  bool looking_ = false;
};

}  // namespace onepiece::gui
