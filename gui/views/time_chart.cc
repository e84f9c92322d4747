#include "gui/views/time_chart.h"

#include <QEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QVBoxLayout>
#include <algorithm>
#include <array>
#include <cmath>

#include "gui/models/format.h"
#include "gui/views/tone.h"

// It needs Qt's lower-case words, which our code does without.
#define signals Q_SIGNALS
#define slots Q_SLOTS
#define foreach Q_FOREACH
#include <qcustomplot.h>
#undef foreach
#undef slots
#undef signals

namespace onepiece::gui {
namespace {

constexpr std::array kDashes = {Qt::SolidLine, Qt::DashLine, Qt::DotLine, Qt::DashDotLine};

/// Lines differ by colour, and lines of the same or a similar colour by dash.
QPen LinePen(std::size_t index, const QPalette& palette) {
  QPen pen(SeriesColor(static_cast<int>(index), palette), 1.5);
  pen.setStyle(kDashes[index % kDashes.size()]);
  return pen;
}

/// Ticks at round numbers of the unit.
class UnitTicker : public QCPAxisTicker {
 public:
  explicit UnitTicker(std::string unit) : unit_(std::move(unit)) { setTickCount(4); }

 protected:
  double getTickStep(const QCPRange& range) override {
    const double step = QCPAxisTicker::getTickStep(range);
    if (unit_ == "1") return std::max(1.0, step);  // Counts are whole numbers.
    const bool binary = unit_ == "bytes" || unit_ == "bytes/s";
    if (!binary || step <= 0) return step;
    return std::exp2(std::ceil(std::log2(range.size() / 5)));
  }
  int getSubTickCount(double /*tickStep*/) override { return 0; }
  QString getTickLabel(double tick, const QLocale& /*locale*/, QChar /*format*/,
                       int /*precision*/) override {
    return FormatValue(std::abs(tick) < 1e-12 ? 0 : tick, unit_);
  }

 private:
  const std::string unit_;
};

double Seconds(std::int64_t ms) { return static_cast<double>(ms) * 1e-3; }

}  // namespace

/// The legend: the names of the lines and their values, now or under the cursor.
class ChartLegend : public QWidget {
 public:
  explicit ChartLegend(QWidget* parent) : QWidget(parent) {
    QSizePolicy policy(QSizePolicy::Preferred, QSizePolicy::Fixed);
    policy.setHeightForWidth(true);
    setSizePolicy(policy);
  }
  void Show(const QString& head, const QStringList& texts) {
    if (head == head_ && texts == texts_) return;
    const bool other = texts.size() != texts_.size();
    head_ = head;
    texts_ = texts;
    if (other || heightForWidth(width()) != height()) updateGeometry();
    update();
  }
  [[nodiscard]] QString text() const {
    return (head_.isEmpty() ? QStringList() : QStringList{head_}).join(u' ') +
           texts_.join(QStringLiteral(", "));
  }
  [[nodiscard]] int heightForWidth(int width) const override { return Flow(width, nullptr); }
  [[nodiscard]] QSize sizeHint() const override {
    const int wide = std::max(width(), 200);
    return {200, heightForWidth(wide)};
  }
  [[nodiscard]] QSize minimumSizeHint() const override { return {80, fontMetrics().height() + 4}; }

 protected:
  void paintEvent(QPaintEvent* /*event*/) override {
    QPainter painter(this);
    Flow(width(), &painter);
  }

 private:
  /// Returns the height that the legend takes. Paints it if `painter` is not null.
  int Flow(int width, QPainter* painter) const {
    const QFontMetrics metrics = fontMetrics();
    const int line = metrics.height() + 2, sample = 2 * metrics.height();
    int x = 0, y = 0;
    if (!head_.isEmpty()) {
      if (painter != nullptr) painter->drawText(x, y + metrics.ascent() + 1, head_);
      x += metrics.horizontalAdvance(head_) + line;
    }
    for (qsizetype i = 0; i < texts_.size(); ++i) {
      const int room = std::max(10, width - sample - 8);
      const QString text = metrics.elidedText(texts_[i], Qt::ElideMiddle, room);
      const int wide = sample + 6 + metrics.horizontalAdvance(text);
      if (x > 0 && x + wide > width) x = 0, y += line;
      if (painter != nullptr) {
        QPen pen = LinePen(static_cast<std::size_t>(i), palette());
        pen.setWidthF(2);
        painter->setPen(pen);
        painter->drawLine(x, y + line / 2, x + sample, y + line / 2);
        painter->setPen(palette().color(QPalette::WindowText));
        painter->drawText(x + sample + 6, y + metrics.ascent() + 1, text);
      }
      x += wide + line;
    }
    return y + line + 2;
  }

  QString head_;
  QStringList texts_;
};

struct TimeChart::Plot {
  QCustomPlot* widget = nullptr;
  QCPItemRect* stale = nullptr;
  QCPItemText* stale_text = nullptr;
  QCPItemStraightLine* cursor = nullptr;
  std::vector<QCPAbstractItem*> thresholds;
};

TimeChart::TimeChart(const QString& title, QWidget* parent)
    : QWidget(parent),
      title_(title),
      heading_(new QLabel(title, this)),
      note_(new QLabel(this)),
      legend_(new ChartLegend(this)),
      plot_(std::make_unique<Plot>()) {
  setObjectName(QStringLiteral("chart.%1").arg(title));
  setAccessibleName(title);
  setFocusPolicy(Qt::StrongFocus);
  heading_->setTextFormat(Qt::PlainText);
  note_->setTextFormat(Qt::PlainText);
  note_->setWordWrap(true);
  auto* plot = new QCustomPlot(this);
  plot_->widget = plot;
  plot->setAccessibleName(title);
  plot->setFocusPolicy(Qt::NoFocus);
  plot->setMouseTracking(true);
  plot->installEventFilter(this);
  plot->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
  plot->setMinimumSize(80, 50);
  plot->axisRect()->setupFullAxesBox(false);
  plot->axisRect()->setMinimumMargins({0, fontMetrics().height() / 2 + 1, 6, 0});
  plot->xAxis2->setVisible(false);
  plot->yAxis2->setVisible(false);
  plot->xAxis->setSubTicks(false);
  plot->xAxis->setTicker(QSharedPointer<QCPAxisTickerDateTime>::create());
  plot_->stale = new QCPItemRect(plot);
  plot_->stale_text = new QCPItemText(plot);
  plot_->cursor = new QCPItemStraightLine(plot);
  plot_->stale_text->setText(tr("nothing newer"));
  for (QCPAbstractItem* item : {static_cast<QCPAbstractItem*>(plot_->stale),
                                static_cast<QCPAbstractItem*>(plot_->stale_text),
                                static_cast<QCPAbstractItem*>(plot_->cursor)}) {
    item->setVisible(false);
  }
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->setSpacing(2);
  layout->addWidget(heading_);
  layout->addWidget(note_);
  layout->addWidget(plot, 1);
  layout->addWidget(legend_);
  note_->hide();
  Dress();
}

TimeChart::~TimeChart() = default;

void TimeChart::SetTitle(const QString& title) {
  if (title == title_) return;
  title_ = title;
  heading_->setText(title);
  setAccessibleName(title);
  plot_->widget->setAccessibleName(title);
  Invalidate();
}

void TimeChart::SetSeries(std::vector<ChartSeries> series) {
  const std::size_t all = series.size();
  if (!series.empty()) {
    const std::string unit = series.front().unit;
    std::erase_if(series, [&](const ChartSeries& one) { return one.unit != unit; });
  }
  if (series.size() > kMaxSeries) series.resize(kMaxSeries);
  left_out_ = all - series.size();
  series_ = std::move(series);
  Invalidate();
}

void TimeChart::SetInterval(history::Interval interval) {
  interval_ = interval;
  if (cursor_ms_ && (*cursor_ms_ < interval.from_ms || *cursor_ms_ > interval.to_ms)) {
    cursor_ms_.reset();
  }
  Invalidate();
}

void TimeChart::SetNow(std::int64_t now_ms) {
  now_ms_ = now_ms;
  Invalidate();
}

void TimeChart::SetThresholds(std::vector<ChartThreshold> thresholds) {
  thresholds_ = std::move(thresholds);
  Invalidate();
}

void TimeChart::SetNote(const QString& note) {
  wanted_note_ = note;
  Invalidate();
}

void TimeChart::Show(const SeriesFeed& feed) {
  SetSeries(feed.series());
  SetInterval(feed.interval());
  SetNow(feed.now_ms());
  SetNote(feed.note());
}

QString TimeChart::summary() const {
  const QString said = ChartSummary(title_, series_, interval_, now_ms_);
  return note().isEmpty() ? said : said + QStringLiteral(". ") + note();
}

QString TimeChart::note() const {
  if (left_out_ == 0) return wanted_note_;
  const QString left_out =
      tr("%1 of %2 lines are shown.").arg(series_.size()).arg(series_.size() + left_out_);
  return wanted_note_.isEmpty() ? left_out : wanted_note_ + u' ' + left_out;
}

QSize TimeChart::sizeHint() const {
  const int line = fontMetrics().height();
  return {line * 26, line * 12};
}

QSize TimeChart::minimumSizeHint() const {
  const int line = fontMetrics().height();
  return {line * 12, line * 8};
}

void TimeChart::Invalidate() {
  if (dirty_) return;
  dirty_ = true;
  QMetaObject::invokeMethod(
      this,
      [this] {
        // A hidden chart stays dirty until showEvent() draws it.
        if (isVisible()) Redraw();
      },
      Qt::QueuedConnection);
}

void TimeChart::Redraw() {
  dirty_ = false;
  const QString said = note();
  note_->setText(said.isEmpty() ? said : ToneGlyph(StatusTone::kWarning) + u' ' + said);
  note_->setVisible(!said.isEmpty());
  DrawLines();
  DrawStale();
  DrawThresholds();
  ReadOutCursor();
  plot_->widget->replot(QCustomPlot::rpQueuedReplot);
}

void TimeChart::Dress() {
  QCustomPlot* plot = plot_->widget;
  const QPalette colors = palette();
  const QColor text = colors.color(QPalette::WindowText);
  QFont bold = font();
  bold.setBold(true);
  heading_->setFont(bold);
  plot->setBackground(colors.brush(QPalette::Window));
  plot->axisRect()->setBackground(colors.brush(QPalette::Base));
  for (QCPAxis* axis : {plot->xAxis, plot->yAxis}) {
    axis->setBasePen(QPen(colors.color(QPalette::Mid)));
    axis->setTickPen(QPen(colors.color(QPalette::Mid)));
    axis->setTickLabelColor(text);
    axis->setTickLabelFont(font());
    QColor grid = colors.color(QPalette::Mid);
    grid.setAlphaF(0.4F);
    axis->grid()->setPen(QPen(grid, 1, Qt::SolidLine));
    axis->grid()->setZeroLinePen(Qt::NoPen);
  }
  plot->xAxis->grid()->setVisible(false);
  plot_->stale->setPen(Qt::NoPen);
  plot_->stale->setBrush(QBrush(colors.color(QPalette::PlaceholderText), Qt::BDiagPattern));
  plot_->stale_text->setColor(text);
  plot_->stale_text->setFont(font());
  plot_->stale_text->setBrush(colors.brush(QPalette::Base));
  plot_->stale_text->setPadding({3, 1, 3, 1});
  plot_->cursor->setPen(QPen(colors.color(QPalette::Highlight), 1));
}

void TimeChart::DrawLines() {
  QCustomPlot* plot = plot_->widget;
  plot->clearGraphs();
  const std::string unit = series_.empty() ? std::string("1") : series_.front().unit;
  double top = unit == "ratio" ? 1 : 0, bottom = 0;
  for (std::size_t i = 0; i < series_.size(); ++i) {
    QVector<double> keys, least, mean, most, lone_keys, lone;
    bool band = false;
    const auto& points = series_[i].points;
    const auto known = [&](std::size_t at) {
      return at < points.size() && !std::isnan(points[at].mean);
    };
    for (std::size_t at = 0; at < points.size(); ++at) {
      keys.append(Seconds(points[at].at_ms));
      least.append(points[at].min);
      mean.append(points[at].mean);
      most.append(points[at].max);
      if (!known(at)) continue;
      band = band || points[at].min < points[at].max;
      top = std::max(top, points[at].max);
      bottom = std::min(bottom, points[at].min);
      if (known(at + 1) || (at > 0 && known(at - 1))) continue;
      lone_keys.append(keys.back());
      lone.append(points[at].mean);
    }
    const QPen pen = LinePen(i, palette());
    if (band) {
      QColor fill = pen.color();
      fill.setAlphaF(0.25F);
      QCPGraph* low = plot->addGraph();
      low->setPen(Qt::NoPen);
      low->setData(keys, least, true);
      QCPGraph* high = plot->addGraph();
      high->setPen(Qt::NoPen);
      high->setBrush(fill);
      high->setChannelFillGraph(low);
      high->setData(keys, most, true);
    }
    QCPGraph* line = plot->addGraph();
    line->setPen(pen);
    line->setData(keys, mean, true);
    if (lone.isEmpty()) continue;
    // A value between two gaps has no line, so it gets a dot.
    QCPGraph* dots = plot->addGraph();
    dots->setPen(QPen(pen.color()));
    dots->setLineStyle(QCPGraph::lsNone);
    dots->setScatterStyle(QCPScatterStyle(QCPScatterStyle::ssDisc, pen.color(), 4));
    dots->setData(lone_keys, lone, true);
  }
  for (const ChartThreshold& threshold : thresholds_) top = std::max(top, threshold.value);
  if (top <= bottom) top = bottom + 1;
  const double room = unit == "ratio" ? 0.02 : 0.08;
  plot->yAxis->setTicker(QSharedPointer<UnitTicker>::create(unit));
  plot->yAxis->setRange(bottom, top + (top - bottom) * room);
  const double from = Seconds(interval_.from_ms), to = Seconds(interval_.to_ms);
  plot->xAxis->setRange(from, to > from ? to : from + 1);
  auto ticker = qSharedPointerCast<QCPAxisTickerDateTime>(plot->xAxis->ticker());
  const double span = to - from;
  ticker->setDateTimeFormat(span <= 1800     ? QStringLiteral("HH:mm:ss")
                            : span <= 172800 ? QStringLiteral("HH:mm")
                                             : QStringLiteral("MM-dd HH:mm"));
  const int label = fontMetrics().horizontalAdvance(QStringLiteral("00:00:00")) * 2;
  ticker->setTickCount(std::clamp(plot->width() / std::max(label, 1), 2, 8));
}

void TimeChart::DrawStale() {
  const std::int64_t last_ms = std::max(LastKnown(series_), interval_.from_ms);
  std::int64_t step_ms = 0;
  for (const ChartSeries& one : series_) step_ms = std::max(step_ms, StepOf(one));
  const std::int64_t end_ms = std::min(now_ms_, interval_.to_ms);
  const bool stale = !series_.empty() && end_ms - last_ms > std::max(kChartStaleMs, 2 * step_ms);
  plot_->stale->setVisible(stale);
  plot_->stale_text->setVisible(stale);
  if (!stale) return;
  const QCPRange range = plot_->widget->yAxis->range();
  plot_->stale->topLeft->setCoords(Seconds(last_ms), range.upper);
  plot_->stale->bottomRight->setCoords(Seconds(end_ms), range.lower);
  plot_->stale_text->setText(LastKnown(series_) == 0 ? tr("not known") : tr("nothing newer"));
  plot_->stale_text->position->setCoords(Seconds(last_ms + (end_ms - last_ms) / 2),
                                         (range.upper + range.lower) / 2);
}

void TimeChart::DrawThresholds() {
  QCustomPlot* plot = plot_->widget;
  for (QCPAbstractItem* item : plot_->thresholds) plot->removeItem(item);
  plot_->thresholds.clear();
  if (series_.empty()) return;
  const QColor color = ToneColor(StatusTone::kBad, palette());
  for (const ChartThreshold& threshold : thresholds_) {
    auto* line = new QCPItemStraightLine(plot);
    line->setPen(QPen(color, 1, Qt::DashLine));
    line->point1->setCoords(0, threshold.value);
    line->point2->setCoords(1, threshold.value);
    auto* text = new QCPItemText(plot);
    text->setPositionAlignment(Qt::AlignRight | Qt::AlignTop);
    text->position->setTypeX(QCPItemPosition::ptAxisRectRatio);
    text->position->setCoords(0.995, threshold.value);
    text->setText(QStringLiteral("%1 %2").arg(threshold.title,
                                              FormatValue(threshold.value, series_.front().unit)));
    text->setColor(color);
    text->setFont(font());
    plot_->thresholds.push_back(line);
    plot_->thresholds.push_back(text);
  }
}

void TimeChart::SetCursor(std::optional<std::int64_t> at_ms) {
  if (at_ms) at_ms = std::clamp(*at_ms, interval_.from_ms, interval_.to_ms);
  if (at_ms == cursor_ms_) return;
  cursor_ms_ = at_ms;
  ReadOutCursor();
  plot_->widget->replot(QCustomPlot::rpQueuedReplot);
}

void TimeChart::ReadOutCursor() {
  plot_->cursor->setVisible(cursor_ms_.has_value());
  QStringList texts;
  for (const ChartSeries& one : series_) {
    const QString value = cursor_ms_ ? ReadOut(ValueAt(one, *cursor_ms_), one.unit)
                                     : FormatValue(ValueNow(one, now_ms_), one.unit);
    texts.append(QStringLiteral("%1  %2").arg(one.title, value));
  }
  QString head;
  if (cursor_ms_) {
    head = FormatTime(*cursor_ms_, now_ms_);
    plot_->cursor->point1->setCoords(Seconds(*cursor_ms_), 0);
    plot_->cursor->point2->setCoords(Seconds(*cursor_ms_), 1);
  }
  legend_->Show(head, texts);
  legend_->setVisible(!texts.isEmpty());
  const QString said =
      cursor_ms_
          ? QStringLiteral("%1: %2. %3").arg(head, texts.join(QStringLiteral(", ")), summary())
          : summary();
  if (said != accessibleDescription()) setAccessibleDescription(said);
}

void TimeChart::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() != QEvent::PaletteChange && event->type() != QEvent::FontChange) return;
  if (plot_ == nullptr || plot_->cursor == nullptr) return;
  Dress();
  Invalidate();
}

void TimeChart::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  Redraw();
}

void TimeChart::keyPressEvent(QKeyEvent* event) {
  std::int64_t step_ms = series_.empty() ? 1000 : std::max<std::int64_t>(1000, StepOf(series_[0]));
  if ((event->modifiers() & Qt::ShiftModifier) != 0) step_ms *= 10;
  const std::int64_t at_ms = cursor_ms_.value_or(interval_.to_ms);
  switch (event->key()) {
    case Qt::Key_Left:
      return SetCursor(at_ms - step_ms);
    case Qt::Key_Right:
      return SetCursor(at_ms + step_ms);
    case Qt::Key_Home:
      return SetCursor(interval_.from_ms);
    case Qt::Key_End:
      return SetCursor(interval_.to_ms);
    case Qt::Key_Escape:
      if (cursor_ms_) return SetCursor(std::nullopt);
      break;
    default:
      break;
  }
  QWidget::keyPressEvent(event);
}

void TimeChart::focusInEvent(QFocusEvent* event) {
  QWidget::focusInEvent(event);
  plot_->widget->axisRect()
      ->axis(QCPAxis::atLeft)
      ->setBasePen(QPen(palette().color(QPalette::Highlight), 2));
  plot_->widget->replot(QCustomPlot::rpQueuedReplot);
}

void TimeChart::focusOutEvent(QFocusEvent* event) {
  QWidget::focusOutEvent(event);
  SetCursor(std::nullopt);
  Dress();
  plot_->widget->replot(QCustomPlot::rpQueuedReplot);
}

bool TimeChart::eventFilter(QObject* watched, QEvent* event) {
  if (watched == plot_->widget && event->type() == QEvent::MouseMove) {
    const QPointF at = static_cast<QMouseEvent*>(event)->position();
    const QRect inside = plot_->widget->axisRect()->rect();
    if (inside.contains(at.toPoint())) {
      SetCursor(static_cast<std::int64_t>(plot_->widget->xAxis->pixelToCoord(at.x()) * 1000));
    } else {
      SetCursor(std::nullopt);
    }
  } else if (watched == plot_->widget && event->type() == QEvent::Leave) {
    SetCursor(std::nullopt);
  }
  return QWidget::eventFilter(watched, event);
}

}  // namespace onepiece::gui
