// A heatmap: a table whose cells say how much by colour. It shows devices, and rings over time.
//
// A cell shows its number if it is at least 28 pixels wide. "N/A" is struck through, "warming up"
// is dotted, and "stale" is hatched over its last value. A cell with a warning is framed and
// marked. A screen reader finds a table with rows, columns and a text for each cell. The arrow keys
// move between cells, Enter picks one.
//
// Threading: GUI thread only.
#pragma once

#include <QTableView>

#include "gui/models/heat_grid.h"

namespace onepiece::gui {

class Heatmap : public QTableView {
  Q_OBJECT
 public:
  /// Ownership: borrows `model`.
  Heatmap(const QString& name, HeatModel& model, QWidget* parent = nullptr);

  /// If dense, the cells share the width, as on a time axis. Otherwise each has room for a number
  /// and a label.
  void SetDense(bool dense);
  /// Makes the cell with this key current and visible. False if there is none.
  bool Select(const QString& key);
  /// The size that shows all cells.
  [[nodiscard]] QSize sizeHint() const override;

 Q_SIGNALS:
  /// A click or Enter on a cell that is not empty.
  void Picked(const QString& key);

 protected:
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void Measure();

  HeatModel& model_;
  bool dense_ = false;
  QString current_;  ///< Key of the current cell, kept while the model resets.
};

}  // namespace onepiece::gui
