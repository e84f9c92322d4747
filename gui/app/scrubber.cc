#include "gui/app/scrubber.h"

#include <QAccessible>
#include <QAccessibleWidget>
#include <QHBoxLayout>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "cluster/base/status.h"
#include "gui/models/format.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr std::int64_t kTickMs = 1000;
constexpr double kMsPerS = 1000;

/// Tells screen readers that the line is a slider. Setting its value does what a click does.
class LineAccessible : public QAccessibleWidget, public QAccessibleValueInterface {
 public:
  explicit LineAccessible(TimeLine* line) : QAccessibleWidget(line, QAccessible::Slider) {}

  [[nodiscard]] QString text(QAccessible::Text kind) const override {
    if (kind == QAccessible::Value && line().position() != 0)
      return FormatTime(line().position(), line().interval().to_ms);
    return QAccessibleWidget::text(kind);
  }
  void* interface_cast(QAccessible::InterfaceType type) override {
    return type == QAccessible::ValueInterface ? static_cast<QAccessibleValueInterface*>(this)
                                               : QAccessibleWidget::interface_cast(type);
  }
  [[nodiscard]] QVariant currentValue() const override { return Seconds(line().position()); }
  void setCurrentValue(const QVariant& value) override {
    const double wanted_s = value.toDouble();
    if (!line().isEnabled() || std::isnan(wanted_s)) return;
    const history::Interval& seen = line().interval();
    line().Pick(static_cast<std::int64_t>(std::clamp(
        wanted_s * kMsPerS, static_cast<double>(seen.from_ms), static_cast<double>(seen.to_ms))));
  }
  [[nodiscard]] QVariant minimumValue() const override {
    return Seconds(line().interval().from_ms);
  }
  [[nodiscard]] QVariant maximumValue() const override { return Seconds(line().interval().to_ms); }
  [[nodiscard]] QVariant minimumStepSize() const override { return Seconds(kTickMs); }

 private:
  [[nodiscard]] TimeLine& line() const { return *static_cast<TimeLine*>(widget()); }
  static double Seconds(std::int64_t ms) { return static_cast<double>(ms) / kMsPerS; }
};

QAccessibleInterface* MakeAccessible(const QString& /*kind*/, QObject* object) {
  auto* line = qobject_cast<TimeLine*>(object);
  return line == nullptr ? nullptr : new LineAccessible(line);
}

StatusTone ToneOf(history::Mark::Kind kind) {
  switch (kind) {
    case history::Mark::Kind::kTopology:
    case history::Mark::Kind::kPlan:
      return StatusTone::kBusy;
    case history::Mark::Kind::kAlert:
    case history::Mark::Kind::kJobFailed:
      return StatusTone::kBad;
    case history::Mark::Kind::kBookmark:
      return StatusTone::kGood;
    case history::Mark::Kind::kConnection:
      return StatusTone::kWarning;
  }
  return StatusTone::kNeutral;
}

/// Marks differ by shape, not only by colour: ▲ topology and connection, ■ plan, ◆ alert and failed
/// job, ● bookmark.
void DrawMark(QPainter& painter, history::Mark::Kind kind, QPointF at, double size) {
  switch (kind) {
    case history::Mark::Kind::kPlan:
      painter.drawRect(QRectF(at.x() - size / 2, at.y() - size / 2, size, size));
      break;
    case history::Mark::Kind::kBookmark:
      painter.drawEllipse(at, size / 2, size / 2);
      break;
    case history::Mark::Kind::kAlert:
    case history::Mark::Kind::kJobFailed:
      painter.drawPolygon(QPolygonF{at + QPointF(0, -size / 2), at + QPointF(size / 2, 0),
                                    at + QPointF(0, size / 2), at + QPointF(-size / 2, 0)});
      break;
    case history::Mark::Kind::kTopology:
    case history::Mark::Kind::kConnection:
      painter.drawPolygon(QPolygonF{at + QPointF(0, -size / 2), at + QPointF(size / 2, size / 2),
                                    at + QPointF(-size / 2, size / 2)});
      break;
  }
}

}  // namespace

TimeLine::TimeLine(QWidget* parent) : QWidget(parent) {
  static const bool told = (QAccessible::installFactory(MakeAccessible), true);
  Q_UNUSED(told);
  setObjectName(QStringLiteral("timeline"));
  setAccessibleName(tr("Time line of the recording"));
  setAccessibleDescription(tr("nothing is recorded"));
  setFocusPolicy(Qt::StrongFocus);
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

QSize TimeLine::sizeHint() const { return {300, fontMetrics().height() * 2}; }

void TimeLine::Show(history::Interval interval, std::vector<history::Gap> gaps,
                    std::vector<history::Mark> marks) {
  interval_ = interval;
  gaps_ = std::move(gaps);
  marks_ = std::move(marks);
  update();
}

void TimeLine::SetPosition(std::int64_t at_ms, bool live) {
  if (at_ms == at_ms_ && live == live_) return;
  at_ms_ = at_ms;
  live_ = live;
  setAccessibleDescription(at_ms == 0 ? tr("nothing is recorded")
                           : live     ? tr("live")
                                      : tr("at %1").arg(FormatTime(at_ms, interval_.to_ms)));
  // While live the position moves by itself, and must not be read out each time.
  if (!live) {
    QAccessibleValueChangeEvent moved(this, static_cast<double>(at_ms) / kMsPerS);
    QAccessible::updateAccessibility(&moved);
  }
  update();
}

std::int64_t TimeLine::Neighbour(bool after) const {
  std::int64_t best = 0;
  for (const history::Mark& mark : marks_) {
    if (after && mark.at_ms > at_ms_ && (best == 0 || mark.at_ms < best)) best = mark.at_ms;
    if (!after && mark.at_ms < at_ms_ && mark.at_ms > best) best = mark.at_ms;
  }
  return best;
}

double TimeLine::XOf(std::int64_t at_ms) const {
  const auto length =
      static_cast<double>(std::max<std::int64_t>(interval_.to_ms - interval_.from_ms, 1));
  const double share =
      std::clamp(static_cast<double>(at_ms - interval_.from_ms) / length, 0.0, 1.0);
  return 8 + share * (width() - 16);
}

std::int64_t TimeLine::TimeAt(double x) const {
  const double share = std::clamp((x - 8) / std::max(width() - 16, 1), 0.0, 1.0);
  return interval_.from_ms + static_cast<std::int64_t>(
                                 share * static_cast<double>(interval_.to_ms - interval_.from_ms));
}

void TimeLine::Pick(std::int64_t at_ms) {
  if (interval_.to_ms <= interval_.from_ms) return;
  Q_EMIT Picked(std::clamp(at_ms, interval_.from_ms, interval_.to_ms));
}

void TimeLine::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  const double middle = height() * 0.68, thick = std::max(height() * 0.22, 5.0);
  const QRectF bar(8, middle - thick / 2, width() - 16, thick);
  painter.setPen(palette().color(QPalette::Mid));
  painter.setBrush(palette().color(QPalette::Base));
  painter.drawRect(bar);
  if (interval_.to_ms > interval_.from_ms) {
    const double now = XOf(at_ms_);
    painter.fillRect(QRectF(bar.left(), bar.top(), now - bar.left(), thick),
                     palette().color(QPalette::Highlight));
    for (const history::Gap& gap : gaps_) {
      const QRectF part(QPointF(XOf(gap.interval.from_ms), bar.top() - 2),
                        QPointF(std::max(XOf(gap.interval.to_ms), XOf(gap.interval.from_ms) + 2),
                                bar.bottom() + 2));
      painter.fillRect(part, palette().color(QPalette::Window));
      painter.fillRect(part, QBrush(palette().color(QPalette::Text), Qt::BDiagPattern));
    }
    const double size = std::min(height() * 0.3, 10.0);
    for (const history::Mark& mark : marks_) {
      const QColor color = ToneColor(ToneOf(mark.kind), palette());
      painter.setPen(color);
      painter.setBrush(color);
      DrawMark(painter, mark.kind, QPointF(XOf(mark.at_ms), height() * 0.28), size);
    }
    painter.setPen(QPen(palette().color(QPalette::Text), 1.5));
    painter.setBrush(palette().color(live_ ? QPalette::Highlight : QPalette::Base));
    painter.drawEllipse(QPointF(now, middle), thick * 0.8, thick * 0.8);
  }
  if (hasFocus()) {
    painter.setPen(QPen(palette().color(QPalette::Highlight), 2));
    painter.setBrush(Qt::NoBrush);
    painter.drawRoundedRect(QRectF(rect()).adjusted(1, 1, -1, -1), 4, 4);
  }
}

void TimeLine::mousePressEvent(QMouseEvent* event) {
  if (event->button() == Qt::LeftButton) Pick(TimeAt(event->position().x()));
}

void TimeLine::mouseMoveEvent(QMouseEvent* event) {
  if ((event->buttons() & Qt::LeftButton) != 0) Pick(TimeAt(event->position().x()));
}

void TimeLine::keyPressEvent(QKeyEvent* event) {
  const bool control = (event->modifiers() & Qt::ControlModifier) != 0;
  const std::int64_t step = (event->modifiers() & Qt::ShiftModifier) != 0 ? 10 * kTickMs : kTickMs;
  switch (event->key()) {
    case Qt::Key_Left:
    case Qt::Key_Right: {
      const bool after = event->key() == Qt::Key_Right;
      const std::int64_t to = control ? Neighbour(after) : at_ms_ + (after ? step : -step);
      if (to != 0) Pick(to);
      return;
    }
    case Qt::Key_Home:
      return Pick(interval_.from_ms);
    case Qt::Key_End:
      return Pick(interval_.to_ms);
    default:
      QWidget::keyPressEvent(event);
  }
}

bool TimeLine::event(QEvent* event) {
  if (event->type() == QEvent::ToolTip) {
    const auto* help = static_cast<QHelpEvent*>(event);
    const std::int64_t at = TimeAt(help->pos().x());
    QString text = FormatTime(at, interval_.to_ms);
    for (const history::Gap& gap : gaps_) {
      if (at >= gap.interval.from_ms && at <= gap.interval.to_ms) {
        text += tr("\nnot recorded: %1").arg(SafeText(gap.reason));
      }
    }
    for (const history::Mark& mark : marks_) {
      if (std::abs(XOf(mark.at_ms) - help->pos().x()) > 5) continue;
      text += u'\n' + FormatTime(mark.at_ms, interval_.to_ms) + u' ' + SafeText(mark.text, 80);
      if (text.size() > 600) break;
    }
    QToolTip::showText(help->globalPos(), text, this);
    return true;
  }
  return QWidget::event(event);
}

Scrubber::Scrubber(ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      line_(new TimeLine(this)),
      range_(new QComboBox(this)),
      pause_(new QPushButton(this)),
      live_(new QPushButton(tr("Go live"), this)),
      before_(new QPushButton(QStringLiteral("|◄"), this)),
      after_(new QPushButton(QStringLiteral("►|"), this)),
      note_(new QLabel(this)) {
  setObjectName(QStringLiteral("scrubber"));
  before_->setAccessibleName(tr("Previous event"));
  before_->setToolTip(tr("Previous event (Ctrl+← on the time line)"));
  after_->setAccessibleName(tr("Next event"));
  after_->setToolTip(tr("Next event (Ctrl+→ on the time line)"));
  live_->setToolTip(tr("Back to now (L)"));
  range_->setAccessibleName(tr("Part of the recording that is shown"));
  for (const auto& [text, minutes] : {std::pair(tr("15 min"), 15),
                                      {tr("1 h"), 60},
                                      {tr("6 h"), 360},
                                      {tr("1 day"), 1440},
                                      {tr("all"), 0}}) {
    range_->addItem(text, minutes);
  }
  note_->setTextFormat(Qt::PlainText);
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(6, 2, 6, 2);
  for (QWidget* widget : std::initializer_list<QWidget*>{before_, pause_, after_}) {
    layout->addWidget(widget);
  }
  layout->addWidget(line_, 1);
  for (QWidget* widget : std::initializer_list<QWidget*>{note_, range_, live_}) {
    layout->addWidget(widget);
  }
  connect(before_, &QPushButton::clicked, this, [this] { StepToMark(false); });
  connect(after_, &QPushButton::clicked, this, [this] { StepToMark(true); });
  connect(pause_, &QPushButton::clicked, this, &Scrubber::TogglePause);
  connect(live_, &QPushButton::clicked, this, &Scrubber::GoLive);
  connect(line_, &TimeLine::Picked, this, &Scrubber::View);
  connect(range_, &QComboBox::currentIndexChanged, this, &Scrubber::Refresh);
  connect(&shown_cluster_, &ShownCluster::Changed, this, &Scrubber::Draw);
  // What is shown has changed, so a pick that failed before is over.
  connect(&shown_cluster_, &ShownCluster::ModeChanged, this,
          [this] { view_error_ = absl::OkStatus(); });
  connect(&shown_cluster_, &ShownCluster::ModeChanged, this, &Scrubber::Draw);
  connect(&shown_cluster_, &ShownCluster::ModeChanged, this, &Scrubber::Refresh);
  connect(&refresh_, &QTimer::timeout, this, &Scrubber::Refresh);
  refresh_.start(2000);
  Refresh();
}

absl::StatusOr<Scrubber::Seen> Scrubber::Look(history::Recording& recording, std::int64_t minutes,
                                              std::int64_t end_ms) {
  const auto info = recording.Info();
  if (!info.ok()) return info.status();
  Seen found{info->interval, {}, {}, {}};
  history::Interval& seen = found.interval;
  // The range is placed so that the shown instant stays in sight.
  const std::int64_t wanted_end = end_ms == 0 ? seen.to_ms : std::max(end_ms, seen.from_ms);
  if (minutes != 0 && seen.to_ms - seen.from_ms > minutes * 60'000) {
    seen.from_ms = std::min(seen.to_ms - minutes * 60'000,
                            std::max(info->interval.from_ms, wanted_end - minutes * 30'000));
    seen.to_ms = seen.from_ms + minutes * 60'000;
  }
  auto gaps = recording.Gaps(seen);
  auto marks = recording.Marks(seen, 500);
  found.status = gaps.ok() ? marks.status() : gaps.status();
  if (gaps.ok()) found.gaps = *std::move(gaps);
  if (marks.ok()) found.marks = *std::move(marks);
  return found;
}

void Scrubber::Refresh() {
  const bool possible = shown_cluster_.recording() != nullptr;
  for (QWidget* widget : std::initializer_list<QWidget*>{before_, after_, line_, range_}) {
    widget->setEnabled(possible);
  }
  // An error of another recording says nothing about this one.
  if (!possible || asked_.lock() != shown_cluster_.recording()) look_error_ = absl::OkStatus();
  ShowNote();
  if (!possible) {
    line_->Show({}, {}, {});
    return Draw();
  }
  // One question at a time. A request in between is repeated once when the answer is there.
  ask_again_ = asking_;
  if (asking_) return;
  asking_ = true;
  asked_ = shown_cluster_.recording();
  const std::int64_t minutes = range_->currentData().toInt();
  const std::int64_t end_ms = shown_cluster_.live() ? 0 : shown_cluster_.viewing_ms();
  shown_cluster_.Read<Seen>(
      this,
      [minutes, end_ms](history::Recording& recording) { return Look(recording, minutes, end_ms); },
      [this](absl::StatusOr<Seen> seen) { Take(std::move(seen)); });
}

void Scrubber::Take(absl::StatusOr<Seen> seen) {
  asking_ = false;
  const auto asked = asked_.lock();
  // The answer is of a recording that is no longer shown, or the range has changed since.
  if (asked == nullptr || asked != shown_cluster_.recording() || std::exchange(ask_again_, false)) {
    if (shown_cluster_.recording() != nullptr) Refresh();
    return;
  }
  look_error_ = seen.ok() ? seen->status : seen.status();
  if (seen.ok()) line_->Show(seen->interval, std::move(seen->gaps), std::move(seen->marks));
  ShowNote();
  Draw();
}

void Scrubber::SetNotice(const QString& notice) {
  if (notice == notice_) return;
  notice_ = notice;
  view_error_ = absl::OkStatus();
  ShowNote();
}

void Scrubber::ShowNote() {
  const absl::Status& error = view_error_.ok() ? look_error_ : view_error_;
  if (!error.ok()) {
    note_->setText(SafeText(base::Message(error), 60));
    note_->setToolTip(SafeText(base::Message(error)));
    return;
  }
  const bool nothing = notice_.isEmpty() && shown_cluster_.recording() == nullptr;
  note_->setText(nothing ? tr("Nothing is being recorded") : notice_);
  note_->setToolTip({});
}

void Scrubber::Draw() {
  const bool live = shown_cluster_.live();
  line_->SetPosition(live ? line_->interval().to_ms : shown_cluster_.viewing_ms(), live);
  pause_->setText(live ? tr("Pause") : tr("Paused"));
  pause_->setAccessibleName(live ? tr("Pause") : tr("Resume"));
  pause_->setToolTip(live ? tr("Hold this instant; recording goes on (Space)")
                          : tr("Follow the cluster again (Space)"));
  live_->setEnabled(!live && shown_cluster_.session() != nullptr);
}

void Scrubber::View(std::int64_t at_ms) {
  view_error_ = shown_cluster_.ViewAt(at_ms);
  ShowNote();
}

void Scrubber::TogglePause() {
  shown_cluster_.live() ? shown_cluster_.Pause() : shown_cluster_.GoLive();
}

void Scrubber::GoLive() { shown_cluster_.GoLive(); }

void Scrubber::StepToMark(bool after) {
  const std::int64_t at = line_->Neighbour(after);
  if (at != 0) View(at);
}

}  // namespace onepiece::gui
