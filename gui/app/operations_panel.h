// The panel below the pages. It lists the plans under way and this console's operations.
#pragma once

#include <QWidget>
#include <memory>

#include "gui/models/operation_rows.h"
#include "gui/models/shown_cluster.h"
#include "gui/views/table_panel.h"

namespace onepiece::gui {

/// The panel.
///
/// Threading: GUI thread only.
class OperationsPanel : public QWidget {
  Q_OBJECT
 public:
  explicit OperationsPanel(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  [[nodiscard]] QSize sizeHint() const override;
  [[nodiscard]] TablePanel* panel() const { return panel_; }

 Q_SIGNALS:
  /// The operator pressed Enter on a plan.
  void Opened(const QString& entity);

 protected:
  void showEvent(QShowEvent* event) override;

 private:
  void Draw();

  ShownCluster& shown_cluster_;
  std::unique_ptr<KeyedTable<OperationRow>> table_;
  TablePanel* panel_;
  std::shared_ptr<const v1::Elasticity> drawn_;
};

}  // namespace onepiece::gui
