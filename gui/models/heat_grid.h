// The cells of a heatmap. Each cell says how much by colour, number and words.
//
// Threading: GUI thread only.
#pragma once

#include <QAbstractTableModel>
#include <QString>
#include <QStringList>
#include <vector>

#include "gui/models/keyed_table.h"

namespace onepiece::gui {

/// How much is known of a number. Each state looks different from the others and from the value 0.
enum class CellState {
  kNone,          ///< There is nothing in this cell.
  kValue,         ///< Measured and current.
  kNotAvailable,  ///< The thing does not report this number.
  kWarmingUp,     ///< Nothing has been measured yet.
  kStale,         ///< The last measurement is too old.
};
QString CellStateName(CellState state);

struct HeatCell {
  CellState state = CellState::kNone;
  QString key;    ///< What the cell shows: "device/instance-1/0".
  QString label;  ///< In small type below the number; safe to show.
  QString text;   ///< The number, "87 %". Set in kValue and kStale.
  double value = 0;
  double share = 0;  ///< Position on the colour scale, 0 to 1.
  QString tip;
  QString warning;  ///< If not empty, the cell is marked, and screen readers read this.
  friend bool operator==(const HeatCell&, const HeatCell&) = default;
};

/// A table of cells.
///
/// Invariants: `cells` has `rows` × `columns` elements.
struct HeatGrid {
  QStringList rows, columns;
  std::vector<HeatCell> cells;  ///< Row by row.
};

/// Roles of a cell: its CellState, its position on the colour scale, its label, its warning.
inline constexpr int kStateRole = Qt::UserRole + 10;
inline constexpr int kHeatRole = Qt::UserRole + 11;
inline constexpr int kLabelRole = Qt::UserRole + 12;
inline constexpr int kWarningRole = Qt::UserRole + 13;

/// A HeatGrid as a Qt model. kKeyRole is a cell's key. kSortRole is null unless the cell is kValue.
class HeatModel : public QAbstractTableModel {
 public:
  using QAbstractTableModel::QAbstractTableModel;

  /// Shows another grid. If the row names and the number of columns stay, only rows that differ are
  /// signalled, so selection and keyboard focus survive. Otherwise the model resets.
  void Show(HeatGrid grid);
  [[nodiscard]] const HeatGrid& grid() const { return grid_; }
  /// The cell with this key; an invalid index if there is none.
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
