// A table of cells that say how much by colour: devices, rings over time.
//
// What       Numbers where a cell is at least 28 pixels wide. "N/A" is struck through, "warming up"
// dotted, "stale" hatched over its last value; what has a warning is framed and marked. A screen
// reader finds a table with rows, columns and what every cell says.
// Keys       Arrows move between cells, Enter picks one.
// Threading  GUI thread only.
#pragma once

#include <QTableView>

#include "gui/models/heat_grid.h"

namespace onepiece::gui {

class Heatmap : public QTableView {
  Q_OBJECT
 public:
  /// The model is borrowed.
  Heatmap(const QString& name, HeatModel& model, QWidget* parent = nullptr);

  /// Cells that share the width (a time axis), or of a size for a number and a label.
  void SetDense(bool dense);
  /// Makes it the current cell, and visible; false: there is none.
  bool Select(const QString& key);
  /// All of its cells.
  [[nodiscard]] QSize sizeHint() const override;

 Q_SIGNALS:
  /// A click or Enter on a cell that is something.
  void Picked(const QString& key);

 protected:
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void Measure();

  HeatModel& model_;
  bool dense_ = false;
  QString current_;  ///< While the model resets.
};

}  // namespace onepiece::gui
