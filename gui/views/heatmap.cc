#include "gui/views/heatmap.h"

#include <QEvent>
#include <QHeaderView>
#include <QPainter>
#include <QScrollBar>
#include <QStyledItemDelegate>
#include <algorithm>

#include "gui/models/format.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr int kNumberWidth = 28;

/// A colour between the background and one hue. Brightness alone tells how much, so it can be read
/// without colour vision.
QColor Heat(double share, const QPalette& palette) {
  const QColor from = palette.color(QPalette::Base);
  const QColor to = IsDark(palette) ? QColor(0x6c, 0xc0, 0xff) : QColor(0x00, 0x4c, 0x8c);
  const auto at = static_cast<float>(std::clamp(share, 0.0, 1.0));
  const auto mix = [at](float a, float b) { return a * (1 - at) + b * at; };
  return QColor::fromRgbF(mix(from.redF(), to.redF()), mix(from.greenF(), to.greenF()),
                          mix(from.blueF(), to.blueF()));
}

QColor Readable(const QColor& ground) {
  const QColor dark(Qt::black), light(Qt::white);
  return ContrastRatio(ground, dark) >= ContrastRatio(ground, light) ? dark : light;
}

class CellDelegate : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;

  void paint(QPainter* painter, const QStyleOptionViewItem& option,
             const QModelIndex& index) const override {
    const auto state = static_cast<CellState>(index.data(kStateRole).toInt());
    const QPalette& palette = option.palette;
    if (state == CellState::kNone) return;
    const QRect cell = option.rect.adjusted(0, 0, -1, -1);
    const bool known = state == CellState::kValue || state == CellState::kStale;
    const QColor ground =
        known ? Heat(index.data(kHeatRole).toDouble(), palette) : palette.color(QPalette::Window);
    const QColor ink = Readable(ground);
    painter->save();
    painter->fillRect(cell, ground);
    painter->setPen(palette.color(QPalette::Mid));
    painter->drawRect(cell);
    Mark(*painter, cell, state, palette, ink);
    const bool warned = !index.data(kWarningRole).toString().isEmpty();
    if (cell.width() >= kNumberWidth) Write(*painter, option, index, ground, ink, warned);
    if (warned) {
      painter->setPen(QPen(ToneColor(StatusTone::kWarning, palette), 2));
      painter->drawRect(cell.adjusted(1, 1, -1, -1));
    }
    const bool current = (option.state & (QStyle::State_Selected | QStyle::State_HasFocus)) != 0;
    if (current) {
      painter->setPen(QPen(palette.color(QPalette::Text), 3));
      painter->drawRect(cell.adjusted(1, 1, -1, -1));
      painter->setPen(QPen(palette.color(QPalette::Base), 1));
      painter->drawRect(cell.adjusted(3, 3, -3, -3));
    }
    painter->restore();
  }

 private:
  static void Mark(QPainter& painter, const QRect& cell, CellState state, const QPalette& palette,
                   const QColor& ink) {
    QColor faint = ink;
    switch (state) {
      case CellState::kStale:
        faint.setAlphaF(0.55F);
        painter.fillRect(cell, QBrush(faint, Qt::BDiagPattern));
        break;
      case CellState::kWarmingUp:
        painter.fillRect(cell, QBrush(palette.color(QPalette::Mid), Qt::Dense6Pattern));
        break;
      case CellState::kNotAvailable:
        painter.setPen(palette.color(QPalette::Mid));
        painter.drawLine(cell.bottomLeft(), cell.topRight());
        break;
      default:
        break;
    }
  }

  static void Write(QPainter& painter, const QStyleOptionViewItem& option, const QModelIndex& index,
                    const QColor& ground, const QColor& ink, bool warned) {
    const QRect inside = option.rect.adjusted(5, 2, -6, -3);
    const QFontMetrics metrics(option.font);
    const QString label = index.data(kLabelRole).toString();
    const bool both = !label.isEmpty() && inside.height() >= 2 * metrics.height();
    QString text = index.data().toString();
    if (warned) text.prepend(ToneGlyph(StatusTone::kWarning) + u' ');
    QRect upper = inside;
    if (both) upper.setHeight(metrics.height());
    // The pattern must not run behind the text, so the text gets a plain ground.
    const int wide = std::min(metrics.horizontalAdvance(text) + 6, inside.width());
    const QRect behind(upper.center().x() - wide / 2, upper.center().y() - metrics.height() / 2,
                       wide, metrics.height());
    painter.fillRect(behind, ground);
    painter.setPen(ink);
    QFont bold = option.font;
    bold.setBold(true);
    painter.setFont(both ? bold : option.font);
    painter.drawText(upper, Qt::AlignCenter,
                     QFontMetrics(painter.font()).elidedText(text, Qt::ElideRight, upper.width()));
    if (!both) return;
    QFont small = option.font;
    small.setPointSizeF(small.pointSizeF() * 0.85);
    painter.setFont(small);
    const QFontMetrics small_metrics(small);
    const QRect lower = inside.adjusted(0, metrics.height(), 0, 0);
    const QString shown = small_metrics.elidedText(label, Qt::ElideMiddle, lower.width());
    const int label_wide = small_metrics.horizontalAdvance(shown) + 4;
    painter.fillRect(
        QRect(lower.center().x() - label_wide / 2, lower.center().y() - small_metrics.height() / 2,
              label_wide, small_metrics.height()),
        ground);
    painter.drawText(lower, Qt::AlignCenter, shown);
  }
};

}  // namespace

Heatmap::Heatmap(const QString& name, HeatModel& model, QWidget* parent)
    : QTableView(parent), model_(model) {
  setModel(&model);
  setObjectName(QStringLiteral("heatmap.%1").arg(name));
  setAccessibleName(name);
  setItemDelegate(new CellDelegate(this));
  setSelectionMode(QAbstractItemView::SingleSelection);
  setSelectionBehavior(QAbstractItemView::SelectItems);
  setEditTriggers(QAbstractItemView::NoEditTriggers);
  setTabKeyNavigation(false);
  setShowGrid(false);
  setCornerButtonEnabled(false);
  setWordWrap(false);
  setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
  setVerticalScrollMode(QAbstractItemView::ScrollPerPixel);
  for (QHeaderView* header : {horizontalHeader(), verticalHeader()}) {
    header->setSectionsClickable(false);
    header->setHighlightSections(false);
    header->setSectionResizeMode(QHeaderView::Fixed);
  }
  horizontalHeader()->setMinimumSectionSize(4);
  const auto pick = [this](const QModelIndex& index) {
    const QString key = index.data(kKeyRole).toString();
    if (!key.isEmpty()) Q_EMIT Picked(key);
  };
  connect(this, &QTableView::clicked, this, pick);
  connect(this, &QTableView::activated, this, pick);
  connect(&model, &QAbstractItemModel::modelAboutToBeReset, this,
          [this] { current_ = currentIndex().data(kKeyRole).toString(); });
  connect(&model, &QAbstractItemModel::modelReset, this, [this] {
    Measure();
    Select(current_);
  });
  Measure();
}

void Heatmap::SetDense(bool dense) {
  dense_ = dense;
  horizontalHeader()->setSectionResizeMode(dense ? QHeaderView::Stretch : QHeaderView::Fixed);
  horizontalHeader()->setVisible(!dense);
  Measure();
}

bool Heatmap::Select(const QString& key) {
  const QModelIndex index = model_.Find(key);
  if (!index.isValid()) return false;
  setCurrentIndex(index);
  scrollTo(index);
  return true;
}

void Heatmap::Measure() {
  const int line = fontMetrics().height();
  verticalHeader()->setDefaultSectionSize(dense_ ? line + 4 : 2 * line + 8);
  const int columns = model_.columnCount();
  if (dense_ || columns == 0) return;
  const int room = (viewport()->width() - 2) / columns;
  horizontalHeader()->setDefaultSectionSize(std::clamp(room, 5 * line, 20 * line));
}

QSize Heatmap::sizeHint() const {
  const int head = dense_ ? 0 : horizontalHeader()->sizeHint().height();
  const int bar = horizontalScrollBar()->sizeHint().height();
  return {fontMetrics().height() * 30,
          head + verticalHeader()->defaultSectionSize() * model_.rowCount() + bar + 4};
}

void Heatmap::resizeEvent(QResizeEvent* event) {
  QTableView::resizeEvent(event);
  Measure();
}

void Heatmap::changeEvent(QEvent* event) {
  QTableView::changeEvent(event);
  if (event->type() == QEvent::FontChange) Measure();
}

}  // namespace onepiece::gui
