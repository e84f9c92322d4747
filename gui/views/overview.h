// The page that answers "is it well, and what has changed?".
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
  explicit OverviewView(Store& store, QWidget* parent = nullptr);

  [[nodiscard]] QString Help() const override;
  /// What changed.
  [[nodiscard]] QAbstractItemModel* ExportModel() override { return changes_.get(); }

 protected:
  void Draw(const Snapshot& snapshot) override;
  bool event(QEvent* event) override;

 private:
  /// Asks the recording for the window's marks, at most every two seconds of what is shown.
  void LoadChanges(const Snapshot& snapshot);
  void Note(const QString& note);

  OverviewTiles tiles_;
  std::array<TileButton*, 6> buttons_{};
  std::unique_ptr<KeyedTable<history::Mark>> changes_;
  QListView* list_;
  QLabel* note_;  ///< Why the list is empty.
  std::int64_t loaded_at_ms_ = 0;
};

}  // namespace onepiece::gui
