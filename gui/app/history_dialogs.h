// What is asked about the recording: words for a bookmark, which part is to be a file of its own;
// and what differs between two instants.
//
// Threading  GUI thread only. Nothing here blocks: answers come to callbacks.
#pragma once

#include <QDialog>
#include <QLabel>
#include <QTimer>
#include <functional>
#include <memory>

#include "cluster/history/compare.h"
#include "cluster/history/recording.h"
#include "gui/models/keyed_table.h"
#include "gui/models/store.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

/// Asks for a bookmark's text.
void AskBookmark(QWidget* parent, std::int64_t at_ms, std::function<void(const QString& text)> yes);

/// Asks which part of the recording, and into which file. `seen` is what the time line shows,
/// `all` what there is.
void AskExport(QWidget* parent, history::Interval seen, history::Interval all,
               const QString& folder,
               std::function<void(history::Interval part, const QString& path)> yes);

/// What differs between the pinned instant and the one that is shown; follows both while it is
/// open.
class CompareDialog : public QDialog {
  Q_OBJECT
 public:
  CompareDialog(Store& store, QWidget* parent);
  [[nodiscard]] TablePanel* panel() const { return panel_; }

 Q_SIGNALS:
  void Opened(const QString& entity);

 private:
  void Look();

  Store& store_;
  std::unique_ptr<KeyedTable<history::Difference>> table_;
  QLabel* head_;
  TablePanel* panel_;
  QTimer look_;  ///< Once a second at most: two large snapshots take moments to compare.
  std::shared_ptr<const Snapshot> from_, to_;
  bool looking_ = false;
};

}  // namespace onepiece::gui
