#include "gui/views/effect_panel.h"

#include <QHeaderView>
#include <QVBoxLayout>
#include <algorithm>

namespace onepiece::gui {

EffectPanel::EffectPanel(const QString& name, QWidget* parent)
    : QWidget(parent), rows_(MakeEffectTable(nullptr)), head_(new QLabel(this)) {
  table_ = new TablePanel(name, rows_.get(), this);
  head_->setTextFormat(Qt::PlainText);
  head_->setWordWrap(true);
  head_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
  head_->setAccessibleName(tr("Where the prediction comes from"));
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(head_);
  layout->addWidget(table_, 1);
  table_->table()->horizontalHeader()->setStretchLastSection(true);
  table_->table()->setTextElideMode(Qt::ElideMiddle);
}

void EffectPanel::ShowNothing(const QString& why) {
  if (head_->text() != why) head_->setText(why);
  rows_->Update({}, SameEffect);
  table_->hide();
}

void EffectPanel::Show(const v1::Plan& plan, const v1::Elasticity* elasticity,
                       std::int64_t server_now_ms) {
  std::vector<EffectRow> rows = EffectRows(plan.prediction());
  QString head = EffectHead(plan.prediction());
  const bool begun = plan.state() != v1::Plan::PROPOSED;
  if (elasticity != nullptr && begun) {
    if (const QString score = Score(plan, *elasticity, server_now_ms, rows); !score.isEmpty())
      head += u'\n' + score;
  }
  if (head_->text() != head) head_->setText(head);
  const bool fresh = rows_->rowCount() == 0;
  table_->setVisible(!rows.empty());
  rows_->Update(std::move(rows), SameEffect);
  table_->table()->setColumnHidden(4, !begun);
  if (!fresh) return;
  QTableView* table = table_->table();
  table->resizeColumnsToContents();
  // Long pool names are elided, so that all columns are visible. Their tips have the whole names.
  const int most = std::max(table->viewport()->width() / 4, fontMetrics().averageCharWidth() * 22);
  for (int column = 0; column < 4; ++column)
    table->setColumnWidth(column, std::min(table->columnWidth(column), most));
}

}  // namespace onepiece::gui
