#include "gui/views/pool_columns.h"

#include <QApplication>
#include <QContextMenuEvent>
#include <QDrag>
#include <QFrame>
#include <QKeyEvent>
#include <QLabel>
#include <QListView>
#include <QMimeData>
#include <QPainter>
#include <QStyledItemDelegate>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>
#include <memory>

#include "gui/models/format.h"
#include "gui/models/keyed_table.h"
#include "gui/models/plan_words.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr int kSecondLineRole = kKeyRole + 100;
constexpr int kBusyRole = kKeyRole + 101;
constexpr int kDraftRole = kKeyRole + 102;

enum class Drafted { kNo, kComes, kLeaves };

struct CardRow {
  std::string node_id;
  QString name, busy, line;  ///< "instance-3", "93 %", "serving".
  StatusTone tone = StatusTone::kNeutral;
  Drafted drafted = Drafted::kNo;

  friend bool operator==(const CardRow&, const CardRow&) = default;
};

QString KeyOf(const CardRow& row) {
  const QString id = QString::fromStdString(row.node_id);
  return row.drafted == Drafted::kLeaves ? id + QStringLiteral("/leaves") : id;
}

QVariant CardData(const CardRow& row, int role) {
  switch (role) {
    case Qt::DisplayRole:
      return row.name;
    case Qt::AccessibleTextRole:
    case Qt::ToolTipRole:
      return QStringLiteral("%1: %2, %3").arg(row.name, row.line, row.busy);
    case kToneRole:
      return static_cast<int>(row.tone);
    case kSecondLineRole:
      return row.line;
    case kBusyRole:
      return row.busy;
    case kDraftRole:
      return static_cast<int>(row.drafted);
    default:
      return {};
  }
}

CardRow MakeRow(const InstanceCard& card, const DraftMove* move, bool leaves) {
  CardRow row{.node_id = card.node_id, .name = SafeText(card.node_id, 60)};
  row.tone = ActivityTone(card.activity);
  row.line = card.place.removed() ? QObject::tr("removed") : ActivityName(card.activity);
  if (!card.moving.empty()) row.line = PhaseName(card.phase) + QStringLiteral(", ") + row.line;
  if (card.place.pinned()) row.line += QObject::tr(", pinned");
  row.busy = FormatShare(card.utilization);
  if (move != nullptr) {
    row.drafted = leaves ? Drafted::kLeaves : Drafted::kComes;
    row.line = leaves ? QObject::tr("to %1").arg(PlaceName(move->to))
                      : QObject::tr("from %1").arg(PlaceName(move->from));
  }
  return row;
}

/// Draws a card: two lines in a frame. A card that the draft brings is dashed and has a plus, a
/// card that it takes away is struck through.
class CardDelegate : public QStyledItemDelegate {
 public:
  using QStyledItemDelegate::QStyledItemDelegate;

  QSize sizeHint(const QStyleOptionViewItem& option, const QModelIndex& /*index*/) const override {
    return {option.fontMetrics.averageCharWidth() * 16, option.fontMetrics.height() * 2 + 14};
  }

  void paint(QPainter* painter, const QStyleOptionViewItem& option,
             const QModelIndex& index) const override {
    const auto drafted = static_cast<Drafted>(index.data(kDraftRole).toInt());
    const bool current = (option.state & QStyle::State_HasFocus) != 0;
    const QPalette& palette = option.palette;
    painter->save();
    painter->setRenderHint(QPainter::Antialiasing);
    QPen pen(
        palette.color(current || drafted != Drafted::kNo ? QPalette::Highlight : QPalette::Mid));
    pen.setWidth(current ? 2 : 1);
    if (drafted != Drafted::kNo) pen.setStyle(Qt::DashLine);
    painter->setPen(pen);
    painter->setBrush(
        palette.color(drafted == Drafted::kLeaves ? QPalette::Window : QPalette::Base));
    painter->drawRoundedRect(QRectF(option.rect).adjusted(3, 2.5, -3, -2.5), 4, 4);

    QRect inside = option.rect.adjusted(9, 6, -9, -6);
    const QColor text = palette.color(QPalette::Text);
    QFont bold = option.font;
    bold.setBold(true);
    bold.setStrikeOut(drafted == Drafted::kLeaves);
    const QFontMetrics metrics(bold);
    const QString busy = drafted == Drafted::kLeaves ? QString() : index.data(kBusyRole).toString();
    painter->setPen(text);
    painter->setFont(option.font);
    painter->drawText(inside, Qt::AlignRight | Qt::AlignTop, busy);
    const auto tone = static_cast<StatusTone>(index.data(kToneRole).toInt());
    const QString glyph = drafted == Drafted::kComes    ? QStringLiteral("+")
                          : drafted == Drafted::kLeaves ? QStringLiteral("→")
                                                        : ToneGlyph(tone);
    painter->setPen(drafted == Drafted::kNo ? ToneColor(tone, palette) : text);
    painter->drawText(inside, Qt::AlignLeft | Qt::AlignTop, glyph);
    const int indent = option.fontMetrics.height();
    const int room = inside.width() - indent - option.fontMetrics.horizontalAdvance(busy) - 6;
    painter->setPen(text);
    painter->setFont(bold);
    painter->drawText(inside.adjusted(indent, 0, 0, 0), Qt::AlignLeft | Qt::AlignTop,
                      metrics.elidedText(index.data().toString(), Qt::ElideMiddle, room));
    painter->setFont(option.font);
    painter->drawText(inside.adjusted(indent, 0, 0, 0), Qt::AlignLeft | Qt::AlignBottom,
                      option.fontMetrics.elidedText(index.data(kSecondLineRole).toString(),
                                                    Qt::ElideRight, inside.width() - indent));
    painter->restore();
  }
};

}  // namespace

/// One pool: its head, and a list of cards.
class PoolBox : public QFrame {
 public:
  PoolBox(const PoolKey& key, PoolColumns& owner);
  [[nodiscard]] const PoolKey& key() const { return key_; }
  [[nodiscard]] QListView* list() const { return list_; }
  [[nodiscard]] const KeyedTable<CardRow>& rows() const { return *rows_; }
  void Show(const PlanDraft& draft, const QString& filter);

 private:
  class List;
  void MakeHead(QVBoxLayout* layout);
  void ShowHead(const PlanDraft& draft, int hidden);

  PoolKey key_;
  PoolColumns& owner_;
  std::unique_ptr<KeyedTable<CardRow>> rows_;
  QListView* list_;
  QLabel *count_ = nullptr, *bounds_ = nullptr, *load_ = nullptr;
  QToolButton *less_ = nullptr, *more_ = nullptr, *limits_ = nullptr;
};

class PoolBox::List : public QListView {
 public:
  List(PoolBox& box, PoolColumns& owner) : QListView(&box), box_(box), owner_(owner) {
    setItemDelegate(new CardDelegate(this));
    setUniformItemSizes(true);
    setEditTriggers(NoEditTriggers);
    setSelectionMode(SingleSelection);
    setVerticalScrollMode(ScrollPerPixel);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setFrameShape(QFrame::NoFrame);
    setDragEnabled(true);
    setAcceptDrops(true);
    setDropIndicatorShown(false);
    viewport()->setAutoFillBackground(false);
  }

 protected:
  void startDrag(Qt::DropActions /*actions*/) override {
    if (!currentIndex().isValid()) return;
    auto* mime = new QMimeData;
    mime->setData(QString::fromLatin1(PoolColumns::kMimeType),
                  QByteArray::fromStdString(NodeAt(currentIndex())));
    auto* drag = new QDrag(this);
    drag->setMimeData(mime);
    QPixmap picture(visualRect(currentIndex()).size());
    picture.fill(palette().color(QPalette::Window));
    viewport()->render(&picture, QPoint(), visualRect(currentIndex()));
    drag->setPixmap(picture);
    // Snapshots go on during the drag. This list must not be deleted with its pool before the drag
    // ends.
    owner_.SetDragging(true);
    drag->exec(Qt::MoveAction);
    owner_.SetDragging(false);
  }
  void dragEnterEvent(QDragEnterEvent* event) override { Accept(event); }
  void dragMoveEvent(QDragMoveEvent* event) override { Accept(event); }
  void dropEvent(QDropEvent* event) override {
    if (!Accept(event)) return;
    const QByteArray id = event->mimeData()->data(QString::fromLatin1(PoolColumns::kMimeType));
    Q_EMIT owner_.MoveWanted(id.left(256).toStdString(), box_.key());
  }
  void keyPressEvent(QKeyEvent* event) override {
    const QModelIndex index = currentIndex();
    const bool plain = event->modifiers() == Qt::NoModifier;
    if (plain && (event->key() == Qt::Key_Left || event->key() == Qt::Key_Right)) {
      return owner_.Step(&box_, event->key() == Qt::Key_Left ? -1 : 1, index.row());
    }
    if (plain && event->key() == Qt::Key_M && index.isValid()) {
      Q_EMIT owner_.MenuWanted(NodeAt(index),
                               viewport()->mapToGlobal(visualRect(index).bottomLeft()));
      return;
    }
    if (plain && event->text() == QStringLiteral("+")) return void(owner_.MoreWanted(box_.key()));
    if (plain && event->text() == QStringLiteral("-")) return void(owner_.LessWanted(box_.key()));
    QListView::keyPressEvent(event);
  }
  void contextMenuEvent(QContextMenuEvent* event) override {
    const QModelIndex index = event->reason() == QContextMenuEvent::Mouse
                                  ? indexAt(viewport()->mapFrom(this, event->pos()))
                                  : currentIndex();
    if (!index.isValid()) return;
    setCurrentIndex(index);
    Q_EMIT owner_.MenuWanted(NodeAt(index),
                             event->reason() == QContextMenuEvent::Mouse
                                 ? event->globalPos()
                                 : viewport()->mapToGlobal(visualRect(index).bottomLeft()));
  }
  void focusInEvent(QFocusEvent* event) override {
    QListView::focusInEvent(event);
    if (!currentIndex().isValid() && model()->rowCount() > 0) setCurrentIndex(model()->index(0, 0));
    currentChanged(currentIndex(), {});
  }
  void currentChanged(const QModelIndex& current, const QModelIndex& previous) override {
    QListView::currentChanged(current, previous);
    if (current.isValid() && hasFocus()) owner_.current_ = NodeAt(current);
  }

 private:
  [[nodiscard]] std::string NodeAt(const QModelIndex& index) const {
    return box_.rows().at(index.row()).node_id;
  }
  static bool Accept(QDropEvent* event) {
    const bool ours = event->mimeData()->hasFormat(QString::fromLatin1(PoolColumns::kMimeType));
    event->setDropAction(Qt::MoveAction);
    event->setAccepted(ours);
    return ours;
  }

  PoolBox& box_;
  PoolColumns& owner_;
};

PoolBox::PoolBox(const PoolKey& key, PoolColumns& owner)
    : QFrame(owner.widget()),
      key_(key),
      owner_(owner),
      rows_(std::make_unique<KeyedTable<CardRow>>(
          std::vector<KeyedTable<CardRow>::Column>{{QString(), QString(), CardData}}, KeyOf)) {
  const QString name = PoolName(key);
  setFrameShape(QFrame::StyledPanel);
  setObjectName(QStringLiteral("pool.") + name);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->setSpacing(2);
  MakeHead(layout);
  list_ = new List(*this, owner);
  list_->setObjectName(QStringLiteral("cards.") + name);
  list_->setAccessibleName(PoolColumns::tr("Instances of %1").arg(name));
  list_->setModel(rows_.get());
  layout->addWidget(list_, 1);
  QObject::connect(list_, &QListView::activated, &owner, [this](const QModelIndex& index) {
    Q_EMIT owner_.DetailsWanted(rows_->at(index.row()).node_id);
  });
}

void PoolBox::MakeHead(QVBoxLayout* layout) {
  const QString name = PoolName(key_);
  auto* title = new QLabel(name.section(u'/', 0, 0), this);
  QFont bold = title->font();
  bold.setBold(true);
  title->setFont(bold);
  title->setTextFormat(Qt::PlainText);
  title->setToolTip(SafeTip(name));
  title->setMinimumWidth(1);
  auto* rest = new QLabel(name.section(u'/', 1), this);
  rest->setTextFormat(Qt::PlainText);
  rest->setMinimumWidth(1);
  rest->setToolTip(SafeTip(name));
  count_ = new QLabel(this);
  bounds_ = new QLabel(this);
  load_ = new QLabel(this);
  for (QLabel* label : {count_, bounds_, load_}) {
    label->setTextFormat(Qt::PlainText);
    label->setMinimumWidth(1);
  }
  const auto button = [this](const QString& text, const QString& name_of) {
    auto* made = new QToolButton(this);
    made->setText(text);
    made->setAccessibleName(name_of);
    made->setToolTip(SafeTip(name_of));
    made->setAutoRaise(true);
    return made;
  };
  auto* counts = new QHBoxLayout;
  counts->addWidget(count_, 1);
  layout->addWidget(title);
  layout->addWidget(rest);
  layout->addLayout(counts);
  layout->addWidget(bounds_);
  layout->addWidget(load_);
  if (key_.pool.empty()) return;
  less_ = button(QStringLiteral("−"), PoolColumns::tr("One less in %1").arg(name));
  more_ = button(QStringLiteral("+"), PoolColumns::tr("One more in %1").arg(name));
  limits_ = button(QStringLiteral("…"), PoolColumns::tr("Limits of %1…").arg(name));
  less_->setObjectName(QStringLiteral("less"));
  more_->setObjectName(QStringLiteral("more"));
  limits_->setObjectName(QStringLiteral("limits"));
  for (QToolButton* each : {less_, more_, limits_}) counts->addWidget(each);
  QObject::connect(less_, &QToolButton::clicked, &owner_,
                   [this] { Q_EMIT owner_.LessWanted(key_); });
  QObject::connect(more_, &QToolButton::clicked, &owner_,
                   [this] { Q_EMIT owner_.MoreWanted(key_); });
  QObject::connect(limits_, &QToolButton::clicked, &owner_,
                   [this] { Q_EMIT owner_.LimitsWanted(key_); });
}

void PoolBox::ShowHead(const PlanDraft& draft, int hidden) {
  const int now = draft.CountNow(key_), after = draft.CountAfter(key_);
  QString count =
      now == after ? QString::number(now) : QStringLiteral("%1 → %2").arg(now).arg(after);
  if (hidden > 0) count += PoolColumns::tr(" (%1 hidden)").arg(hidden);
  const PoolColumn* column = draft.board().Find(key_);
  QString bounds, load;
  if (column != nullptr && !key_.pool.empty()) {
    bounds = PoolColumns::tr("at least %1").arg(column->min_instances);
    if (column->max_instances > 0)
      bounds += PoolColumns::tr(", at most %1").arg(column->max_instances);
    load = column->utilization.has_value()
               ? PoolColumns::tr("%1 busy").arg(FormatShare(column->utilization))
               : PoolColumns::tr("not measured yet");
  }
  if (bounds_->text() != bounds) bounds_->setText(bounds);
  if (count_->text() != count) count_->setText(count);
  if (load_->text() != load) load_->setText(load);
  QFont font = count_->font();
  font.setBold(now != after);
  if (font != count_->font()) count_->setFont(font);
}

void PoolBox::Show(const PlanDraft& draft, const QString& filter) {
  std::vector<CardRow> rows;
  int hidden = 0;
  for (const InstanceCard& card : draft.board().cards) {
    const DraftMove* move = draft.Find(card.node_id);
    const v1::Placement place = draft.PlaceOf(card);
    const bool here = place.workflow_set() == key_.workflow_set && place.pool() == key_.pool;
    const bool leaves = move != nullptr && !here && card.key() == key_;
    if (!here && !leaves) continue;
    CardRow row = MakeRow(card, move, leaves);
    if (!filter.isEmpty() && !row.name.contains(filter, Qt::CaseInsensitive) &&
        !row.line.contains(filter, Qt::CaseInsensitive)) {
      ++hidden;
    } else {
      rows.push_back(std::move(row));
    }
  }
  rows_->Update(std::move(rows), std::equal_to<CardRow>());
  ShowHead(draft, hidden);
  const int unit = fontMetrics().averageCharWidth();
  setMinimumWidth(unit * 28);
  setMaximumWidth(unit * 44);
}

PoolColumns::PoolColumns(QWidget* parent) : QScrollArea(parent) {
  auto* inside = new QWidget(this);
  layout_ = new QHBoxLayout(inside);
  layout_->setContentsMargins(0, 0, 0, 0);
  layout_->setSpacing(6);
  layout_->addStretch();
  setWidget(inside);
  setWidgetResizable(true);
  setFrameShape(QFrame::NoFrame);
  setAccessibleName(tr("Pools"));
  setFocusPolicy(Qt::NoFocus);
}

PoolColumns::~PoolColumns() = default;

void PoolColumns::Show(const PlanDraft& draft) {
  if (!dragging_) MakeColumns(draft.board());
  for (PoolBox* box : columns_) box->Show(draft, filter_);
}

void PoolColumns::MakeColumns(const PoolBoard& board) {
  const auto same = [](const PoolBox* box, const PoolColumn& column) {
    return box->key() == column.key;
  };
  if (std::ranges::equal(columns_, board.columns, same)) return;
  std::vector<PoolBox*> columns;
  for (const PoolColumn& column : board.columns) {
    const auto known = std::ranges::find(columns_, column.key, &PoolBox::key);
    if (known != columns_.end()) {
      columns.push_back(*known);
      columns_.erase(known);
    } else {
      columns.push_back(new PoolBox(column.key, *this));
    }
  }
  for (PoolBox* gone : columns_) delete gone;
  columns_ = std::move(columns);
  for (std::size_t i = 0; i < columns_.size(); ++i)
    layout_->insertWidget(static_cast<int>(i), columns_[i], 1);
}

void PoolColumns::SetFilter(const QString& text) { filter_ = text; }

bool PoolColumns::SelectNode(const std::string& node_id) {
  const QString id = QString::fromStdString(node_id);
  current_ = node_id;
  for (PoolBox* box : columns_) {
    const int row = box->rows().RowOf(id);
    if (row < 0) continue;
    box->list()->setCurrentIndex(box->rows().index(row, 0));
    box->list()->setFocus();
    ensureWidgetVisible(box);
    return true;
  }
  return false;
}

bool PoolColumns::SelectPool(const PoolKey& key) {
  const auto found = std::ranges::find(columns_, key, &PoolBox::key);
  if (found == columns_.end()) return false;
  (*found)->list()->setFocus();
  ensureWidgetVisible(*found);
  return true;
}

void PoolColumns::Step(const PoolBox* from, int columns, int row) {
  const auto at = std::ranges::find(columns_, from) - columns_.begin();
  const auto to = at + columns;
  if (to < 0 || to >= static_cast<std::ptrdiff_t>(columns_.size())) return;
  PoolBox* box = columns_[static_cast<std::size_t>(to)];
  const int last = box->rows().rowCount() - 1;
  if (last >= 0) box->list()->setCurrentIndex(box->rows().index(std::clamp(row, 0, last), 0));
  box->list()->setFocus();
  ensureWidgetVisible(box);
}

void PoolColumns::changeEvent(QEvent* event) {
  QScrollArea::changeEvent(event);
  if (event->type() != QEvent::FontChange) return;
  for (PoolBox* box : columns_) box->list()->doItemsLayout();
}

}  // namespace onepiece::gui
