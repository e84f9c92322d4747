// The page "Overview". It answers "is it well, and what has changed?".
#pragma once

#include <QLabel>
#include <QListView>
#include <array>
#include <memory>

#include "cluster/history/recording.h"
#include "gui/models/keyed_table.h"
#include "gui/models/overview_tiles.h"
#include "gui/views/view.h"

namespace onepiece::gui {

class TileButton;

class OverviewView : public View {
  Q_OBJECT
 public:
  explicit OverviewView(ShownCluster& shown_cluster, QWidget* parent = nullptr);

  [[nodiscard]] QString Help() const override;
  /// The list of changes.
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return changes_.get(); }

 protected:
  void Draw(const session::Snapshot& snapshot) override;
  bool event(QEvent* event) override;

 private:
  /// Asks the recording for the marks of the window, at most once in two seconds of shown time.
  void LoadChanges(const session::Snapshot& snapshot);
  void Note(const QString& note);

  OverviewTiles tiles_;
  std::array<TileButton*, 6> buttons_{};
  std::unique_ptr<KeyedTable<history::Mark>> changes_;
  QListView* list_;
  QLabel* note_;  ///< Why the list is empty.
  std::int64_t loaded_at_ms_ = 0;
};

}  // namespace onepiece::gui
