#include "gui/views/job_gantt.h"

#include <QHBoxLayout>
#include <QHeaderView>
#include <QHelpEvent>
#include <QPainter>
#include <QScrollArea>
#include <QStackedWidget>
#include <QToolTip>
#include <QVBoxLayout>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "cluster/client/client.h"
#include "cluster/session/link.h"
#include "gui/models/format.h"
#include "gui/views/table_panel.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr std::array kKinds = {SpanKind::kWait, SpanKind::kCompute, SpanKind::kTransfer,
                               SpanKind::kOther};

/// The kinds of spans differ by pattern first, then by colour, and by words where there is room.
QBrush BrushOf(SpanKind kind, const QPalette& palette) {
  switch (kind) {
    case SpanKind::kWait:
      return QBrush(ToneColor(StatusTone::kWarning, palette), Qt::BDiagPattern);
    case SpanKind::kCompute:
      return QBrush(ToneColor(StatusTone::kBusy, palette), Qt::SolidPattern);
    case SpanKind::kTransfer:
      return QBrush(ToneColor(StatusTone::kGood, palette), Qt::DiagCrossPattern);
    case SpanKind::kOther:
      break;
  }
  return QBrush(palette.color(QPalette::Text), Qt::HorPattern);
}

/// A step of 1, 2 or 5 times a power of ten that divides `length` into about `count` parts.
double NiceStep(double length, int count) {
  const double rough = length / std::max(1, count);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

QString BarText(const SpanRow& row, const SpanBar& bar) {
  QString text = JobGantt::tr("%1: %2 (%3), from %4 on")
                     .arg(SpanKindName(bar.kind), FormatSeconds(bar.end_s - bar.start_s),
                          bar.operation, FormatSeconds(bar.start_s));
  text += u'\n' + (row.stage.isEmpty() ? row.node : row.stage + QStringLiteral(" · ") + row.node);
  return bar.detail.isEmpty() ? text : text + u'\n' + bar.detail;
}

}  // namespace

/// A row for each stage and node, a bar for each span.
class GanttChart : public QWidget {
 public:
  explicit GanttChart(QWidget* parent) : QWidget(parent) {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Minimum);
    setAccessibleName(JobGantt::tr("Chart of the job's time; the table says the same"));
  }
  void Show(const JobSpans& spans) {
    spans_ = &spans;
    names_ = 0;
    for (const SpanRow& row : spans.rows) {
      names_ = std::max(names_, fontMetrics().horizontalAdvance(Name(row)));
    }
    names_ = std::min(names_, fontMetrics().averageCharWidth() * 36) + 2 * kMargin;
    updateGeometry();
    update();
  }
  [[nodiscard]] QSize sizeHint() const override {
    const int rows = spans_ == nullptr ? 0 : static_cast<int>(spans_->rows.size());
    return {400, (rows + 2) * RowHeight() + kMargin};
  }
  [[nodiscard]] QSize minimumSizeHint() const override { return {240, sizeHint().height()}; }

 protected:
  bool event(QEvent* event) override {
    if (event->type() == QEvent::ToolTip) {
      const auto* help = static_cast<QHelpEvent*>(event);
      QToolTip::showText(help->globalPos(), SafeTip(TextAt(help->pos())), this);
      return true;
    }
    return QWidget::event(event);
  }
  void paintEvent(QPaintEvent* /*event*/) override {
    QPainter painter(this);
    PaintLegend(painter);
    if (spans_ == nullptr || spans_->length_s <= 0) return;
    PaintAxis(painter);
    for (std::size_t i = 0; i < spans_->rows.size(); ++i) PaintRow(painter, i);
  }

 private:
  static constexpr int kMargin = 6;
  [[nodiscard]] int RowHeight() const { return fontMetrics().height() + 8; }
  [[nodiscard]] static QString Name(const SpanRow& row) {
    return row.stage.isEmpty() ? row.node : row.stage + QStringLiteral(" · ") + row.node;
  }
  [[nodiscard]] int RowTop(std::size_t row) const {
    return (static_cast<int>(row) + 2) * RowHeight();
  }
  [[nodiscard]] double X(double seconds) const {
    const double room = std::max(1, width() - names_ - kMargin);
    return names_ + seconds / spans_->length_s * room;
  }
  [[nodiscard]] QRectF BarRect(std::size_t row, const SpanBar& bar) const {
    const double left = X(bar.start_s);
    // A short span stays visible.
    return {left, RowTop(row) + 3.0, std::max(2.0, X(bar.end_s) - left), RowHeight() - 6.0};
  }
  [[nodiscard]] QString TextAt(const QPoint& at) const {
    if (spans_ == nullptr || spans_->length_s <= 0) return {};
    for (std::size_t i = 0; i < spans_->rows.size(); ++i) {
      const auto& bars = spans_->rows[i].bars;
      for (auto bar = bars.rbegin(); bar != bars.rend(); ++bar) {
        if (BarRect(i, *bar).adjusted(-2, -2, 2, 2).contains(at))
          return BarText(spans_->rows[i], *bar);
      }
    }
    return {};
  }
  void PaintLegend(QPainter& painter) {
    int left = kMargin;
    const int side = fontMetrics().height();
    for (const SpanKind kind : kKinds) {
      const QRect swatch(left, (RowHeight() - side) / 2, side * 2, side);
      painter.setPen(palette().color(QPalette::Text));
      painter.setBrush(BrushOf(kind, palette()));
      painter.drawRect(swatch);
      const QString name = SpanKindName(kind);
      left += side * 2 + kMargin;
      painter.drawText(QRect(left, 0, width(), RowHeight()), Qt::AlignLeft | Qt::AlignVCenter,
                       name);
      left += fontMetrics().horizontalAdvance(name) + 4 * kMargin;
    }
  }
  void PaintAxis(QPainter& painter) {
    const int labels = std::max(1, (width() - names_) / (fontMetrics().averageCharWidth() * 12));
    const double step = NiceStep(spans_->length_s, labels);
    if (!(step > 0) || spans_->length_s / step > 1000) return;
    for (int i = 0; i * step <= spans_->length_s; ++i) {
      const double x = X(i * step);
      painter.setPen(palette().color(QPalette::Mid));
      painter.drawLine(QPointF(x, RowHeight() * 2 - 2), QPointF(x, height()));
      painter.setPen(palette().color(QPalette::Text));
      const QString text = FormatSeconds(i * step);
      const int room = fontMetrics().horizontalAdvance(text);
      const double left = std::min(x, static_cast<double>(width() - room));
      painter.drawText(QRectF(left, RowHeight(), room + 1, RowHeight()),
                       Qt::AlignLeft | Qt::AlignVCenter, text);
    }
  }
  void PaintRow(QPainter& painter, std::size_t i) {
    const SpanRow& row = spans_->rows[i];
    painter.setPen(palette().color(QPalette::Text));
    const int room = names_ - 2 * kMargin;
    painter.drawText(QRect(kMargin, RowTop(i), room, RowHeight()), Qt::AlignLeft | Qt::AlignVCenter,
                     fontMetrics().elidedText(Name(row), Qt::ElideMiddle, room));
    for (const SpanBar& bar : row.bars) {
      const QRectF rect = BarRect(i, bar);
      painter.setPen(palette().color(QPalette::Text));
      painter.setBrush(palette().color(QPalette::Base));
      painter.drawRect(rect);
      painter.setBrush(BrushOf(bar.kind, palette()));
      painter.drawRect(rect);
      const QString text = SpanKindName(bar.kind) + u' ' + FormatSeconds(bar.end_s - bar.start_s);
      const QRectF words(rect.left() + 4, rect.top(), fontMetrics().horizontalAdvance(text) + 6,
                         rect.height());
      if (words.width() + 8 > rect.width()) continue;
      painter.fillRect(words, palette().color(QPalette::Base));
      painter.drawText(words, Qt::AlignCenter, text);
    }
  }

  const JobSpans* spans_ = nullptr;
  int names_ = 0;  ///< Width of the rows' names.
};

std::vector<KeyedTable<JobGantt::Line>::Column> JobGantt::Columns() {
  const auto text = [](QString Line::*field) {
    return [field](const Line& line, int role) {
      return role == Qt::DisplayRole || role == Qt::ToolTipRole ? QVariant(line.*field)
                                                                : QVariant();
    };
  };
  const auto seconds = [](double Line::*field) {
    return [field](const Line& line, int role) {
      if (role == kSortRole) return QVariant(line.*field);
      return role == Qt::DisplayRole ? QVariant(FormatSeconds(line.*field)) : QVariant();
    };
  };
  const auto right = Qt::AlignRight | Qt::AlignVCenter;
  return {{tr("Stage"), {}, text(&Line::stage)},
          {tr("Node"), {}, text(&Line::node)},
          {tr("What"), tr("Wait, compute, transfer or other"), text(&Line::kind)},
          {tr("Begin"), tr("After the first span; each node by its own clock"),
           seconds(&Line::start_s), right},
          {tr("Length"), {}, seconds(&Line::length_s), right},
          {tr("Operation"), tr("As the node named it"), text(&Line::operation)},
          {tr("Detail"), {}, text(&Line::detail)}};
}

JobGantt::JobGantt(ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      chart_(new GanttChart(this)),
      words_(new QLabel(this)),
      again_(new QPushButton(tr("Ask again"), this)),
      lines_(std::make_unique<KeyedTable<Line>>(Columns(),
                                                [](const Line& line) { return line.key; })) {
  setObjectName(QStringLiteral("jobs.gantt"));
  words_->setTextFormat(Qt::PlainText);
  words_->setWordWrap(true);
  words_->setObjectName(QStringLiteral("jobs.gantt.words"));
  again_->setAccessibleName(tr("Ask for the job's times again"));
  auto* as_table = new QPushButton(tr("Table"), this);
  as_table->setCheckable(true);
  as_table->setAccessibleName(tr("Show the same as a table"));
  auto* top = new QHBoxLayout;
  top->addWidget(words_, 1);
  top->addWidget(as_table);
  top->addWidget(again_);
  auto* area = new QScrollArea(this);
  area->setWidgetResizable(true);
  area->setWidget(chart_);
  area->setFrameShape(QFrame::NoFrame);
  area->setAccessibleName(tr("Chart"));
  auto* table = new TablePanel(QStringLiteral("spans"), lines_.get(), this);
  table->table()->horizontalHeader()->setStretchLastSection(true);
  auto* parts = new QStackedWidget(this);
  parts->addWidget(area);
  parts->addWidget(table);
  connect(as_table, &QPushButton::toggled, parts, &QStackedWidget::setCurrentIndex);
  auto* layout = new QVBoxLayout(this);
  layout->addLayout(top);
  layout->addWidget(parts, 1);
  connect(again_, &QPushButton::clicked, this, [this] {
    asked_.clear();
    Ask();
  });
  for (const auto signal : {&ShownCluster::ModeChanged, &ShownCluster::LinkChanged}) {
    connect(&shown_cluster, signal, this, [this] { Ask(); });
  }
}

QString JobGantt::WhyNot() const {
  if (shown_cluster_.snapshot()->recorded || !shown_cluster_.live())
    return tr(
        "The times of single jobs are not recorded: they can be looked at live. What its "
        "stages have told is on the page Progress.");
  if (shown_cluster_.session() == nullptr) return tr("No cluster is connected.");
  return {};
}

void JobGantt::Show(const std::shared_ptr<const v1::Job>& job) {
  const bool same = job != nullptr && job_ != nullptr && job->uid() == job_->uid();
  job_ = job;
  if (!same) {
    asked_.clear();
    spans_ = {};
    words_->clear();
    Fill();
  }
  Ask();
}

void JobGantt::Ask() {
  if (job_ == nullptr || !isVisible() || asking_) return;
  const QString why_not = WhyNot();
  again_->setEnabled(why_not.isEmpty());
  if (!why_not.isEmpty()) {
    words_->setText(why_not);
    return;
  }
  const std::string place = job_->uid() + '\n' + job_->stage() + '\n' +
                            std::to_string(job_->state()) + '\n' +
                            std::to_string(job_->timings_size());
  if (place == asked_) return;
  asked_ = place;
  asking_ = true;
  if (spans_.rows.empty()) words_->setText(tr("Asking all nodes…"));
  shown_cluster_.Ask<v1::GetJobTraceResponse>(
      this, [uid = job_->uid()](client::Client& client) { return client.Trace(uid); },
      [this, uid = job_->uid()](absl::StatusOr<v1::GetJobTraceResponse> trace) {
        asking_ = false;
        if (job_ != nullptr && job_->uid() == uid) Take(std::move(trace));
        Ask();  // The job may have moved on, or another one is shown.
      },
      tr("Ask for the times of %1").arg(SafeText(job_->uid(), 64)));
}

void JobGantt::Take(absl::StatusOr<v1::GetJobTraceResponse> trace) {
  if (!trace.ok()) {
    words_->setText(tr("Its times cannot be asked for: %1")
                        .arg(SafeText(session::Explain(trace.status()), 300)));
    return;
  }
  spans_ = SpansOf(*trace);
  QStringList words;
  if (spans_.rows.empty()) {
    words.append(tr("No node remembers it: nodes keep the last spans only."));
  } else {
    words.append(tr("wait %1 · compute %2 · transfer %3 · from the first to the last %4")
                     .arg(FormatSeconds(spans_.wait_s), FormatSeconds(spans_.compute_s),
                          FormatSeconds(spans_.transfer_s), FormatSeconds(spans_.length_s)));
  }
  if (!spans_.unreachable.isEmpty()) {
    words.append(tr("▲ These nodes did not answer, what they did is missing: %1.")
                     .arg(spans_.unreachable.join(QStringLiteral(", "))));
  }
  if (spans_.truncated) words.append(tr("▲ Only the first %1 spans are shown.").arg(kMaxSpans));
  words_->setText(words.join(u'\n'));
  Fill();
}

void JobGantt::Fill() {
  std::vector<Line> lines;
  for (const SpanRow& row : spans_.rows) {
    for (const SpanBar& bar : row.bars) {
      lines.push_back({QString::number(lines.size()), row.stage, row.node, SpanKindName(bar.kind),
                       bar.operation, bar.detail, bar.start_s, bar.end_s - bar.start_s});
    }
  }
  lines_->Update(std::move(lines), std::equal_to<Line>());
  chart_->Show(spans_);
}

void JobGantt::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  Ask();
}

}  // namespace onepiece::gui
