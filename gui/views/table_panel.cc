#include "gui/views/table_panel.h"

#include <QApplication>
#include <QClipboard>
#include <QHBoxLayout>
#include <QHeaderView>
#include <QKeyEvent>
#include <QMenu>
#include <QPainter>
#include <QStyledItemDelegate>
#include <QVBoxLayout>
#include <algorithm>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

/// Any column, by what is shown.
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
  /// What is not known comes last, whichever the order.
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
    return value.isValid() ? value : index.data(Qt::DisplayRole);
  }
  QString text_;
};

/// Text in the colour of its tone, which the theme decides.
class ToneDelegate : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;

 protected:
  void initStyleOption(QStyleOptionViewItem* option, const QModelIndex& index) const override {
    QStyledItemDelegate::initStyleOption(option, index);
    const QVariant tone = index.data(kToneRole);
    if (!tone.isValid()) return;
    option->palette.setColor(QPalette::Text,
                             ToneColor(static_cast<StatusTone>(tone.toInt()), option->palette));
  }
};

}  // namespace

TablePanel::TablePanel(const QString& name, QAbstractItemModel* model, QWidget* parent)
    : QWidget(parent),
      rows_(new RowFilter(this)),
      table_(new QTableView(this)),
      note_(new QLabel(this)),
      clear_(new QPushButton(tr("Clear filters"), this)) {
  rows_->setSourceModel(model);
  rows_->setDynamicSortFilter(true);
  table_->setModel(rows_);
  table_->setObjectName(QStringLiteral("table.%1").arg(name));
  table_->setAccessibleName(name);
  table_->setItemDelegate(new ToneDelegate(table_));
  table_->setSelectionBehavior(QAbstractItemView::SelectRows);
  table_->setEditTriggers(QAbstractItemView::NoEditTriggers);
  table_->setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
  table_->setWordWrap(false);
  table_->setShowGrid(false);
  table_->setAlternatingRowColors(true);
  table_->setTabKeyNavigation(false);
  table_->setCornerButtonEnabled(false);
  table_->verticalHeader()->hide();
  table_->verticalHeader()->setSectionResizeMode(QHeaderView::Fixed);
  table_->verticalHeader()->setDefaultSectionSize(fontMetrics().height() + 8);
  table_->horizontalHeader()->setHighlightSections(false);
  table_->horizontalHeader()->setDefaultAlignment(Qt::AlignLeft | Qt::AlignVCenter);
  table_->horizontalHeader()->setContextMenuPolicy(Qt::CustomContextMenu);
  table_->horizontalHeader()->setSortIndicatorClearable(true);
  table_->horizontalHeader()->setSortIndicator(-1, Qt::AscendingOrder);
  table_->setSortingEnabled(true);
  table_->installEventFilter(this);
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
  connect(table_->horizontalHeader(), &QWidget::customContextMenuRequested, this,
          &TablePanel::ChooseColumns);
  connect(table_, &QTableView::activated, this,
          [this](const QModelIndex& index) { Q_EMIT Activated(index.data(kKeyRole).toString()); });
  connect(table_->selectionModel(), &QItemSelectionModel::currentRowChanged, this,
          [this] { Q_EMIT Current(current()); });
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

bool TablePanel::eventFilter(QObject* watched, QEvent* event) {
  if (event->type() == QEvent::KeyPress &&
      static_cast<QKeyEvent*>(event)->matches(QKeySequence::Copy)) {
    Copy();
    return true;
  }
  if (watched == table_ && event->type() == QEvent::FontChange) {
    table_->verticalHeader()->setDefaultSectionSize(table_->fontMetrics().height() + 8);
  }
  return QWidget::eventFilter(watched, event);
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
}

void TablePanel::Copy() {
  const auto fields = [this](const std::function<QString(int column)>& field) {
    QStringList line;
    for (int column = 0; column < rows_->columnCount(); ++column) {
      if (!table_->isColumnHidden(column)) line.append(field(column));
    }
    return line.join(u'\t');
  };
  QStringList lines = {
      fields([this](int column) { return rows_->headerData(column, Qt::Horizontal).toString(); })};
  for (const QModelIndex& row : table_->selectionModel()->selectedRows()) {
    lines.append(fields([&](int column) { return row.siblingAtColumn(column).data().toString(); }));
  }
  QApplication::clipboard()->setText(lines.join(u'\n'));
}

void TablePanel::ChooseColumns(const QPoint& at) {
  QMenu menu(this);
  for (int column = 0; column < rows_->columnCount(); ++column) {
    QAction* action = menu.addAction(rows_->headerData(column, Qt::Horizontal).toString());
    action->setCheckable(true);
    action->setChecked(!table_->isColumnHidden(column));
    action->setEnabled(column > 0);  // What says which row it is stays.
    connect(action, &QAction::toggled, table_,
            [this, column](bool shown) { table_->setColumnHidden(column, !shown); });
  }
  menu.exec(table_->horizontalHeader()->mapToGlobal(at));
}

}  // namespace onepiece::gui
