#include "gui/views/overview.h"

#include <QAbstractButton>
#include <QEvent>
#include <QGridLayout>
#include <QPainter>
#include <QStyle>
#include <QStyleOptionFocusRect>
#include <QVBoxLayout>
#include <cstdlib>

#include "cluster/base/status.h"
#include "gui/views/tone.h"

namespace onepiece::gui {

/// A tile as a button: the value in large type, its title above it, the detail below it.
class TileButton : public QAbstractButton {
 public:
  explicit TileButton(QWidget* parent) : QAbstractButton(parent) {
    setFocusPolicy(Qt::StrongFocus);
    setCursor(Qt::PointingHandCursor);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  }

  void Show(const OverviewTile& tile) {
    const bool same = tile.value == tile_.value && tile.detail == tile_.detail &&
                      tile.tone == tile_.tone && tile.title == tile_.title;
    tile_ = tile;
    if (same) return;
    setAccessibleName(QStringLiteral("%1: %2, %3").arg(tile.title, tile.value, tile.detail));
    setToolTip(SafeTip(tr("%1\n%2\nOpens %3").arg(tile.value, tile.detail, tile.view_id)));
    update();
  }
  [[nodiscard]] const OverviewTile& tile() const { return tile_; }

  [[nodiscard]] QSize sizeHint() const override {
    const int line = fontMetrics().height();
    return {line * 15, line * 5 + 2 * kMargin};
  }
  [[nodiscard]] QSize minimumSizeHint() const override {
    return {fontMetrics().height() * 10, sizeHint().height()};
  }

 protected:
  void paintEvent(QPaintEvent* /*event*/) override {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const QRectF frame = QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5);
    const bool lit = underMouse() || isDown();
    painter.setPen(palette().color(lit ? QPalette::Highlight : QPalette::Mid));
    painter.setBrush(palette().color(QPalette::Base));
    painter.drawRoundedRect(frame, 6, 6);

    QRect inside = rect().adjusted(kMargin, kMargin, -kMargin, -kMargin);
    painter.setPen(palette().color(QPalette::Text));
    painter.drawText(inside, Qt::AlignLeft | Qt::AlignTop,
                     fontMetrics().elidedText(tile_.title, Qt::ElideRight, inside.width()));
    const int line = fontMetrics().height();
    const QString detail = Fitting(tile_.detail, {inside.width(), 2 * line});
    QRect below = Box(detail, inside);
    below.moveBottom(inside.bottom());
    const QRect middle(inside.left(), inside.top() + line, inside.width(),
                       below.top() - inside.top() - line);
    QFont large = font();
    large.setPointSizeF(large.pointSizeF() * 1.7);
    large.setBold(true);
    painter.setFont(large);
    const QFontMetrics metrics(large);
    painter.setPen(ToneColor(tile_.tone, palette()));
    painter.drawText(middle, Qt::AlignLeft | Qt::AlignVCenter,
                     metrics.elidedText(ToneGlyph(tile_.tone) + u' ' + tile_.value, Qt::ElideRight,
                                        inside.width()));
    painter.setFont(font());
    painter.setPen(palette().color(QPalette::Text));
    painter.drawText(below, Qt::AlignLeft | Qt::TextWordWrap, detail);
    if (hasFocus()) {
      QPen ring(palette().color(QPalette::Highlight), 2);
      painter.setPen(ring);
      painter.setBrush(Qt::NoBrush);
      painter.drawRoundedRect(frame.adjusted(1.5, 1.5, -1.5, -1.5), 5, 5);
    }
  }
  void enterEvent(QEnterEvent* /*event*/) override { update(); }
  void leaveEvent(QEvent* /*event*/) override { update(); }

 private:
  [[nodiscard]] QRect Box(const QString& text, const QRect& within) const {
    QRect box = fontMetrics().boundingRect(within, Qt::AlignLeft | Qt::TextWordWrap, text);
    box.setLeft(within.left());
    box.setWidth(within.width());
    return box;
  }
  /// As much of the text as fits. The tip has all of it.
  [[nodiscard]] QString Fitting(QString text, const QSize& room) const {
    while (Box(text, {{}, room}).height() > room.height() && text.size() > 8) {
      text = text.left(text.size() * 9 / 10 - 1).trimmed() + u'…';
    }
    return text;
  }

  static constexpr int kMargin = 12;
  OverviewTile tile_;
};

namespace {

QString KindGlyph(history::Mark::Kind kind) {
  switch (kind) {
    case history::Mark::Kind::kTopology:
      return QStringLiteral("▲");
    case history::Mark::Kind::kPlan:
      return QStringLiteral("■");
    case history::Mark::Kind::kAlert:
      return QStringLiteral("◆");
    case history::Mark::Kind::kJobFailed:
      return QStringLiteral("✖");
    case history::Mark::Kind::kBookmark:
      return QStringLiteral("★");
    case history::Mark::Kind::kConnection:
      return QStringLiteral("⚡");
  }
  return QStringLiteral("?");
}

QVariant ChangeText(const history::Mark& mark, int role) {
  const QString text = SafeText(mark.text);
  switch (role) {
    case Qt::DisplayRole:
      return QStringLiteral("%1  %2  %3")
          .arg(FormatTime(mark.at_ms, mark.at_ms), KindGlyph(mark.kind), text);
    case Qt::ToolTipRole:
      return text;
    case Qt::AccessibleTextRole:
      return QStringLiteral("%1 %2").arg(FormatTime(mark.at_ms, mark.at_ms), text);
    default:
      return {};
  }
}

QString MarkKey(const history::Mark& mark) {
  return QStringLiteral("%1/%2/%3/%4")
      .arg(mark.at_ms)
      .arg(static_cast<int>(mark.kind))
      .arg(QString::fromStdString(mark.entity), QString::fromStdString(mark.text));
}

}  // namespace

OverviewView::OverviewView(ShownCluster& shown_cluster, QWidget* parent)
    : View(QStringLiteral("overview"), tr("Overview"), shown_cluster, parent),
      changes_(std::make_unique<KeyedTable<history::Mark>>(
          std::vector<KeyedTable<history::Mark>::Column>{
              {tr("What changed"), tr("Marks of the recording, newest first"), ChangeText}},
          MarkKey)),
      list_(new QListView(this)),
      note_(new QLabel(this)) {
  auto* layout = new QVBoxLayout(this);
  auto* grid = new QGridLayout;
  grid->setSpacing(12);
  for (std::size_t i = 0; i < buttons_.size(); ++i) {
    buttons_[i] = new TileButton(this);
    buttons_[i]->setObjectName(QStringLiteral("tile%1").arg(i));
    grid->addWidget(buttons_[i], static_cast<int>(i) / 3, static_cast<int>(i) % 3);
    connect(buttons_[i], &QAbstractButton::clicked, this, [this, i] {
      const OverviewTile& tile = buttons_[i]->tile();
      Q_EMIT Wanted(tile.view_id, tile.entity);
    });
  }
  layout->addLayout(grid);
  auto* heading = new QLabel(tr("What changed in the last 15 minutes"), this);
  QFont bold = heading->font();
  bold.setBold(true);
  heading->setFont(bold);
  heading->setContentsMargins(0, 12, 0, 0);
  layout->addWidget(heading);
  note_->setWordWrap(true);
  note_->setTextFormat(Qt::PlainText);
  layout->addWidget(note_);
  list_->setModel(changes_.get());
  list_->setObjectName(QStringLiteral("changes"));
  list_->setAccessibleName(heading->text());
  list_->setUniformItemSizes(true);
  list_->setEditTriggers(QAbstractItemView::NoEditTriggers);
  layout->addWidget(list_, 1);
  connect(list_, &QListView::activated, this, [this](const QModelIndex& index) {
    const QString entity = QString::fromStdString(changes_->at(index.row()).entity);
    Q_EMIT Wanted(QString(), entity);
  });
}

QString OverviewView::Help() const {
  return tr(
      "Six numbers of the whole cluster, and what has changed.\n\n"
      "Press a tile (Tab, then Space) to open the page behind it. N/A means that nobody has "
      "said, which is not 0. A tile with “?” shows the last known value and why there is no "
      "newer one.\n\n"
      "Throughput and p95 latency are of jobs that finished in the last 15 minutes; with "
      "fewer than five there is no percentile.\n\n"
      "The list comes from the recording: nodes that came and went, plans, alerts, failed "
      "jobs. Enter opens the thing that a line is about.");
}

bool OverviewView::event(QEvent* event) {
  if (event->type() == QEvent::FontChange || event->type() == QEvent::PaletteChange) {
    for (TileButton* button : buttons_) {
      if (button != nullptr) button->updateGeometry();
    }
  }
  return View::event(event);
}

void OverviewView::Draw(const session::Snapshot& snapshot) {
  const auto tiles = tiles_.Of(snapshot);
  for (std::size_t i = 0; i < tiles.size(); ++i) buttons_[i]->Show(tiles[i]);
  LoadChanges(snapshot);
}

void OverviewView::LoadChanges(const session::Snapshot& snapshot) {
  if (shown_cluster().recording() == nullptr) {
    changes_->Update({}, [](const auto&, const auto&) { return true; });
    loaded_at_ms_ = 0;
    return Note(tr("Nothing is being recorded, so what has changed is not known."));
  }
  if (loaded_at_ms_ != 0 && std::abs(snapshot.at_ms - loaded_at_ms_) < 2000) return;
  loaded_at_ms_ = snapshot.at_ms;
  const history::Interval window = {snapshot.at_ms - OverviewTiles::kWindowMs, snapshot.at_ms};
  using Marks = std::vector<history::Mark>;
  shown_cluster().Read<Marks>(
      this, [window](history::Recording& recording) { return recording.Marks(window, 200); },
      [this, at_ms = snapshot.at_ms](absl::StatusOr<Marks> marks) {
        if (at_ms != loaded_at_ms_) return;  // Another instant has been asked for since.
        if (!marks.ok()) {
          return Note(tr("What has changed cannot be read: %1")
                          .arg(SafeText(base::Message(marks.status()))));
        }
        std::reverse(marks->begin(), marks->end());
        changes_->Update(*std::move(marks), [](const history::Mark& a, const history::Mark& b) {
          return a.at_ms == b.at_ms && a.kind == b.kind && a.entity == b.entity && a.text == b.text;
        });
        Note(changes_->rowCount() == 0 ? tr("Nothing.") : QString());
      });
}

void OverviewView::Note(const QString& note) {
  note_->setText(note);
  note_->setVisible(!note.isEmpty());
}

}  // namespace onepiece::gui
