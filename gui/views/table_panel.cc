#include "gui/views/table_panel.h"

#include <QApplication>
#include <QClipboard>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QKeyEvent>
#include <QMenu>
#include <QPainter>
#include <QScopedValueRollback>
#include <QStyledItemDelegate>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

/// Filters rows by the text that any column shows.
class RowFilter : public QSortFilterProxyModel {
 public:
  using QSortFilterProxyModel::QSortFilterProxyModel;
  void SetText(const QString& text) {
    if (text == text_) return;
    text_ = text;
    invalidateFilter();
  }
  [[nodiscard]] bool filters() const { return !text_.isEmpty(); }

 protected:
  bool filterAcceptsRow(int row, const QModelIndex& parent) const override {
    if (text_.isEmpty()) return true;
    for (int column = 0; column < sourceModel()->columnCount(parent); ++column) {
      const QString cell = sourceModel()->index(row, column, parent).data().toString();
      if (cell.contains(text_, Qt::CaseInsensitive)) return true;
    }
    return false;
  }
  /// A value that is not known comes last in both directions.
  bool lessThan(const QModelIndex& left, const QModelIndex& right) const override {
    const QVariant a = Value(left), b = Value(right);
    if (!a.isValid() || !b.isValid()) {
      return sortOrder() == Qt::AscendingOrder ? a.isValid() && !b.isValid()
                                               : !a.isValid() && b.isValid();
    }
    if (a.typeId() == QMetaType::QString) {
      return QString::localeAwareCompare(a.toString(), b.toString()) < 0;
    }
    return QVariant::compare(a, b) == QPartialOrdering::Less;
  }

 private:
  static QVariant Value(const QModelIndex& index) {
    const QVariant value = index.data(kSortRole);
    if (value.typeId() == QMetaType::Double && std::isnan(value.toDouble())) return {};
    if (value.isValid()) return value.isNull() ? QVariant() : value;
    return index.data(Qt::DisplayRole);
  }
  QString text_;
};

/// Draws text in the colour of its tone, over a bar if the cell has a share.
class ToneDelegate : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;

  void paint(QPainter* painter, const QStyleOptionViewItem& option,
             const QModelIndex& index) const override {
    QStyledItemDelegate::paint(painter, option, index);
    const QVariant share = index.data(kShareRole);
    if (!share.isValid()) return;
    QStyleOptionViewItem styled = option;
    initStyleOption(&styled, index);
    const QRect bar = option.rect.adjusted(3, option.rect.height() - 4, -3, -1);
    const bool selected = (option.state & QStyle::State_Selected) != 0;
    painter->fillRect(bar, option.palette.color(QPalette::Mid));
    painter->fillRect(QRectF(bar.left(), bar.top(),
                             bar.width() * std::clamp(share.toDouble(), 0.0, 1.0), bar.height()),
                      styled.palette.color(selected ? QPalette::HighlightedText : QPalette::Text));
  }

 protected:
  void initStyleOption(QStyleOptionViewItem* option, const QModelIndex& index) const override {
    QStyledItemDelegate::initStyleOption(option, index);
    // Numbers are right-aligned. A space keeps them apart from the next column's text.
    if ((option->displayAlignment & Qt::AlignRight) != 0) option->text += QChar(0x2002);
    const QVariant tone = index.data(kToneRole);
    if (!tone.isValid()) return;
    option->palette.setColor(QPalette::Text,
                             ToneColor(static_cast<StatusTone>(tone.toInt()), option->palette));
  }
};

/// Copies the selected rows in a form that a spreadsheet accepts.
void Copy(const QTableView& table) {
  const QAbstractItemModel& model = *table.model();
  const auto fields = [&](const std::function<QString(int column)>& field) {
    QStringList line;
    for (int column = 0; column < model.columnCount(); ++column) {
      if (!table.isColumnHidden(column)) line.append(field(column));
    }
    return line.join(u'\t');
  };
  QStringList lines = {
      fields([&](int column) { return model.headerData(column, Qt::Horizontal).toString(); })};
  for (const QModelIndex& row : table.selectionModel()->selectedRows()) {
    lines.append(fields([&](int column) { return row.siblingAtColumn(column).data().toString(); }));
  }
  QApplication::clipboard()->setText(lines.join(u'\n'));
}

void ChooseColumns(QTableView& table, const QPoint& at) {
  QMenu menu(&table);
  for (int column = 0; column < table.model()->columnCount(); ++column) {
    QAction* action = menu.addAction(table.model()->headerData(column, Qt::Horizontal).toString());
    action->setCheckable(true);
    action->setChecked(!table.isColumnHidden(column));
    action->setEnabled(column > 0);  // The first column names the row, so it cannot be hidden.
    QObject::connect(action, &QAction::toggled, &table,
                     [&table, column](bool shown) { table.setColumnHidden(column, !shown); });
  }
  menu.exec(table.horizontalHeader()->mapToGlobal(at));
}

/// A table view whose Ctrl+C copies all selected rows, and whose rows are as high as the font.
class Table : public QTableView {
 public:
  using QTableView::QTableView;
  void FitRows() { verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 8); }

 protected:
  void keyPressEvent(QKeyEvent* event) override {
    if (event->matches(QKeySequence::Copy)) {
      Copy(*this);
    } else {
      QTableView::keyPressEvent(event);
    }
  }
  void changeEvent(QEvent* event) override {
    QTableView::changeEvent(event);
    if (event->type() == QEvent::FontChange) FitRows();
  }
};

}  // namespace

QTableView* MakeTable(const QString& name, QAbstractItemModel* model, QWidget* parent) {
  auto* table = new Table(parent);
  table->setModel(model);
  table->setObjectName(QStringLiteral("table.%1").arg(name));
  table->setAccessibleName(name);
  table->setItemDelegate(new ToneDelegate(table));
  table->setSelectionBehavior(QAbstractItemView::SelectRows);
  table->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table->setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
  table->setWordWrap(false);
  table->setShowGrid(false);
  table->setAlternatingRowColors(true);
  table->setTabKeyNavigation(false);
  table->setCornerButtonEnabled(false);
  table->verticalHeader()->hide();
  table->verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
  table->FitRows();
  QHeaderView* header = table->horizontalHeader();
  header->setHighlightSections(false);
  header->setDefaultAlignment(Qt::AlignLeft | Qt::AlignVCenter);
  header->setContextMenuPolicy(Qt::CustomContextMenu);
  header->setSortIndicatorClearable(true);
  // setSortingEnabled() sorts at once by the indicator, so the indicator is cleared first.
  header->setSortIndicator(-1, Qt::AscendingOrder);
  table->setSortingEnabled(true);
  QObject::connect(header, &QWidget::customContextMenuRequested, table,
                   [table](const QPoint& at) { ChooseColumns(*table, at); });
  return table;
}

TablePanel::TablePanel(const QString& name, QAbstractItemModel* model, QWidget* parent)
    : QWidget(parent),
      rows_(new RowFilter(this)),
      note_(new QLabel(this)),
      clear_(new QPushButton(tr("Clear filters"), this)) {
  rows_->setSourceModel(model);
  rows_->setDynamicSortFilter(true);
  table_ = MakeTable(name, rows_, this);
  note_->setWordWrap(true);
  note_->setTextFormat(Qt::PlainText);
  auto* below = new QHBoxLayout;
  below->addWidget(note_, 1);
  below->addWidget(clear_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(table_, 1);
  layout->addLayout(below);
  setFocusProxy(table_);
  connect(clear_, &QPushButton::clicked, this, &TablePanel::ClearWanted);
  connect(table_, &QTableView::activated, this,
          [this](const QModelIndex& index) { Q_EMIT Activated(index.data(kKeyRole).toString()); });
  // Queued, because the row may go in the middle of an update of the model, and a listener may
  // update that model again.
  connect(
      table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
      [this] { Q_EMIT Current(current()); }, Qt::QueuedConnection);
  for (const auto signal : {&QAbstractItemModel::rowsInserted, &QAbstractItemModel::rowsRemoved}) {
    connect(rows_, signal, this, &TablePanel::Count);
    connect(model, signal, this, &TablePanel::Count);
  }
  connect(rows_, &QAbstractItemModel::modelReset, this, &TablePanel::Count);
  Count();
}

void TablePanel::SetFilter(const QString& text) {
  static_cast<RowFilter*>(rows_)->SetText(text);
  Count();
}

void TablePanel::FitColumns(int max_characters) {
  fit_characters_ = max_characters;
  QHeaderView* header = table_->horizontalHeader();
  header->setStretchLastSection(true);
  header->setResizeContentsPrecision(100);
  needed_.assign(static_cast<std::size_t>(rows_->columnCount()), 0);
  table_->viewport()->installEventFilter(this);
  connect(header, &QHeaderView::sectionResized, this, [this](int column) {
    // The last section stretches with the window, so its size says nothing about the operator's
    // wish.
    if (!fitting_ && column + 1 < rows_->columnCount()) fit_characters_ = 0;
  });
  Fit();
}

void TablePanel::Fit() {
  if (fit_characters_ == 0 || rows_->rowCount() == 0) return;
  const int before = fitted_rows_;
  fitted_rows_ = std::max(fitted_rows_, rows_->rowCount());
  // Widths that fit many rows fit more rows, too.
  if (before == fitted_rows_ || before > 100) return;
  const QAbstractItemView* view = table_;  // The base class, where sizeHintForColumn() is public.
  for (int column = 0; column < rows_->columnCount(); ++column) {
    const int hint = std::max(view->sizeHintForColumn(column),
                              table_->horizontalHeader()->sectionSizeHint(column));
    int& needed = needed_[static_cast<std::size_t>(column)];
    needed = std::max(needed, hint + 12);
  }
  Spread();
}

void TablePanel::Reserve(int column, const QString& text) {
  needed_[static_cast<std::size_t>(column)] = fontMetrics().horizontalAdvance(text) + 20;
}

void TablePanel::Spread() {
  if (fit_characters_ == 0 || fitted_rows_ == 0 || fitting_) return;
  const QScopedValueRollback fitting(fitting_, true);
  const int most = fontMetrics().averageCharWidth() * fit_characters_;
  const int last = rows_->columnCount() - 1;
  int room = table_->viewport()->width();
  for (int column = 0; column <= last; ++column) {
    if (table_->isColumnHidden(column)) continue;
    room -= std::min(needed_[static_cast<std::size_t>(column)], most);
  }
  // The last column takes the rest of the width. Without any rest it keeps a width that can be
  // read.
  table_->horizontalHeader()->setStretchLastSection(room >= 0);
  for (int column = 0; column <= last; ++column) {
    if (table_->isColumnHidden(column)) continue;
    const int needed = needed_[static_cast<std::size_t>(column)];
    const int more = std::clamp(needed - most, 0, std::max(room, 0));
    room -= more;
    if (column < last || room < 0) table_->setColumnWidth(column, std::min(needed, most + more));
  }
}

bool TablePanel::eventFilter(QObject* watched, QEvent* event) {
  if (watched == table_->viewport() && event->type() == QEvent::Resize) Spread();
  return QWidget::eventFilter(watched, event);
}

void TablePanel::SetEmptyText(const QString& text) {
  if (text == empty_text_) return;
  empty_text_ = text;
  Count();
}

bool TablePanel::Select(const QString& key) {
  for (int row = 0; row < rows_->rowCount(); ++row) {
    const QModelIndex index = rows_->index(row, 0);
    if (index.data(kKeyRole).toString() != key) continue;
    table_->setCurrentIndex(index);
    table_->scrollTo(index);
    return true;
  }
  return false;
}

QString TablePanel::current() const {
  const QModelIndex index = table_->currentIndex();
  return index.isValid() ? index.data(kKeyRole).toString() : QString();
}

QStringList TablePanel::selected() const {
  auto indexes = table_->selectionModel()->selectedRows();
  std::sort(indexes.begin(), indexes.end(),
            [](const QModelIndex& a, const QModelIndex& b) { return a.row() < b.row(); });
  QStringList keys;
  for (const QModelIndex& index : indexes) keys.append(index.data(kKeyRole).toString());
  return keys;
}

void TablePanel::Count() {
  const int all = rows_->sourceModel()->rowCount(), shown = rows_->rowCount();
  const bool filters = static_cast<RowFilter*>(rows_)->filters();
  QString text;
  if (all == 0) {
    text = empty_text_;
  } else if (filters && shown == 0) {
    text = tr("Nothing matches the filter. %n hidden.", nullptr, all);
  } else if (filters) {
    text = tr("%1 shown, %2 hidden by the filter.").arg(shown).arg(all - shown);
  }
  if (text != note_->text()) note_->setText(text);
  note_->setVisible(!text.isEmpty());
  clear_->setVisible(filters && all > 0);
  Fit();
}

}  // namespace onepiece::gui
