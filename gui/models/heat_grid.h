// Cells of a heatmap: how much of something, by colour, number and words.
//
// Threading  GUI thread only.
#pragma once

#include <QAbstractTableModel>
#include <QString>
#include <QStringList>
#include <vector>

#include "gui/models/keyed_table.h"

namespace onepiece::gui {

/// How much is known of a number. All of them look different, and none like 0.
enum class CellState {
  kNone,          ///< There is no such thing.
  kValue,         ///< Measured, and new.
  kNotAvailable,  ///< The thing does not have this number.
  kWarmingUp,     ///< There will be one: nothing has been measured yet.
  kStale,         ///< The last one is too old to hold.
};
QString CellStateName(CellState state);

struct HeatCell {
  CellState state = CellState::kNone;
  QString key;    ///< "device/instance-1/0": what it is of.
  QString label;  ///< In small type below the number; safe to show.
  QString text;   ///< The number, "87 %". Of kValue and kStale.
  double value = 0;
  double share = 0;  ///< What the colour says, 0 to 1.
  QString tip;
  QString warning;  ///< Not empty: marked, and said.
  friend bool operator==(const HeatCell&, const HeatCell&) = default;
};

/// REQUIRES: as many cells as rows times columns.
struct HeatGrid {
  QStringList rows, columns;
  std::vector<HeatCell> cells;  ///< Row by row.
};

/// Role of a cell's CellState, and of what its colour says.
inline constexpr int kStateRole = Qt::UserRole + 10;
inline constexpr int kHeatRole = Qt::UserRole + 11;
inline constexpr int kLabelRole = Qt::UserRole + 12;
inline constexpr int kWarningRole = Qt::UserRole + 13;

/// kSortRole of a cell that is no kValue is null, kKeyRole is its key.
class HeatModel : public QAbstractTableModel {
 public:
  using QAbstractTableModel::QAbstractTableModel;

  /// A grid of the same shape changes only the rows that differ; another one resets.
  void Show(HeatGrid grid);
  [[nodiscard]] const HeatGrid& grid() const { return grid_; }
  /// Invalid: there is none.
  [[nodiscard]] QModelIndex Find(const QString& key) const;

  int rowCount(const QModelIndex& parent = {}) const override {
    return parent.isValid() ? 0 : static_cast<int>(grid_.rows.size());
  }
  int columnCount(const QModelIndex& parent = {}) const override {
    return parent.isValid() ? 0 : static_cast<int>(grid_.columns.size());
  }
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;
  [[nodiscard]] Qt::ItemFlags flags(const QModelIndex& index) const override;

 private:
  [[nodiscard]] const HeatCell& Cell(int row, int column) const {
    return grid_
        .cells[static_cast<std::size_t>(row) * static_cast<std::size_t>(grid_.columns.size()) +
               static_cast<std::size_t>(column)];
  }

  HeatGrid grid_;
};

}  // namespace onepiece::gui
