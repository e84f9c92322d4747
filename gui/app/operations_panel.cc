#include "gui/app/operations_panel.h"

#include <QShowEvent>
#include <QVBoxLayout>

namespace onepiece::gui {

OperationsPanel::OperationsPanel(ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      table_(std::make_unique<KeyedTable<OperationRow>>(
          OperationColumns(), [](const OperationRow& row) { return row.key; })),
      panel_(new TablePanel(tr("Operations"), table_.get(), this)) {
  setObjectName(QStringLiteral("operations"));
  panel_->FitColumns();
  panel_->SetEmptyText(tr("No plan is under way, and nothing was asked for yet."));
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(panel_);
  setFocusProxy(panel_);
  connect(panel_, &TablePanel::Activated, this, [this](const QString& key) {
    if (key.startsWith(u"plan/")) Q_EMIT Opened(key);
  });
  connect(&shown_cluster_, &ShownCluster::Changed, this, [this] {
    if (shown_cluster_.snapshot()->elasticity.value != drawn_) Draw();
  });
  connect(&shown_cluster_.operations(), &OperationLog::Changed, this, &OperationsPanel::Draw);
  Draw();
}

QSize OperationsPanel::sizeHint() const {
  return {fontMetrics().averageCharWidth() * 80, fontMetrics().height() * 8};
}

void OperationsPanel::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  Draw();
}

void OperationsPanel::Draw() {
  drawn_ = shown_cluster_.snapshot()->elasticity.value;
  table_->Update(OperationRows(*shown_cluster_.snapshot(), shown_cluster_.operations().all()),
                 std::equal_to<OperationRow>());
}

}  // namespace onepiece::gui
