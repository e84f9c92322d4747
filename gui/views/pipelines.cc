#include "gui/views/pipelines.h"

#include <QFocusEvent>
#include <QHBoxLayout>
#include <QToolButton>
#include <QVBoxLayout>
#include <cmath>

#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

constexpr double kZoomStep = 1.25;

void SetText(QLabel& label, const QString& text) {
  if (label.text() != text) label.setText(text);
}

}  // namespace

PipelinesView::PipelinesView(ShownCluster& shown_cluster, QWidget* parent)
    : View(QStringLiteral("pipelines"), tr("Pipelines"), shown_cluster, parent),
      table_(MakePipelineTable()),
      canvas_(new PipelineCanvas(this)),
      verdict_(new QLabel(this)),
      note_(new QLabel(this)),
      zoom_(new QLabel(this)),
      empty_(new QLabel(this)),
      clear_(new QPushButton(tr("Clear filters"), this)),
      jump_(new QPushButton(tr("Show it"), this)) {
  verdict_->setObjectName(QStringLiteral("pipelines.verdict"));
  note_->setObjectName(QStringLiteral("pipelines.note"));
  empty_->setObjectName(QStringLiteral("pipelines.empty"));
  for (QLabel* label : {verdict_, note_, empty_}) {
    label->setWordWrap(true);
    label->setTextFormat(Qt::PlainText);
  }
  empty_->setAlignment(Qt::AlignCenter);
  empty_->setContentsMargins(48, 0, 48, 0);
  zoom_->setAccessibleName(tr("Zoom"));
  jump_->setToolTip(tr("Goes to the pool that this is about (B)"));
  auto* top = new QHBoxLayout;
  top->setContentsMargins(14, 8, 10, 0);
  top->addWidget(verdict_, 1);
  top->addWidget(jump_);
  top->addSpacing(12);
  top->addWidget(zoom_);
  const auto button = [&](const QString& text, const QString& name, auto action) {
    auto* made = new QToolButton(this);
    made->setText(text);
    made->setAccessibleName(name);
    made->setToolTip(name);
    made->setAutoRaise(true);
    connect(made, &QToolButton::clicked, this, action);
    top->addWidget(made);
  };
  button(QStringLiteral("−"), tr("Smaller (-)"), [this] { canvas_->ZoomBy(1 / kZoomStep); });
  button(QStringLiteral("+"), tr("Larger (+)"), [this] { canvas_->ZoomBy(kZoomStep); });
  button(tr("Fit"), tr("Show everything (.)"), [this] { canvas_->Fit(); });
  auto* notes = new QHBoxLayout;
  notes->setContentsMargins(14, 0, 10, 0);
  notes->addWidget(note_, 1);
  notes->addWidget(clear_);
  auto* body = new QWidget(this);
  body_ = new QStackedLayout(body);
  body_->addWidget(empty_);
  body_->addWidget(canvas_);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addLayout(top);
  layout->addLayout(notes);
  layout->addWidget(body, 1);
  connect(jump_, &QPushButton::clicked, this, &PipelinesView::JumpToBottleneck);
  connect(clear_, &QPushButton::clicked, this, &View::ClearFilterWanted);
  connect(canvas_, &PipelineCanvas::Wanted, this,
          [this](const QString& entity) { Q_EMIT Wanted(QString(), entity); });
  connect(canvas_, &PipelineCanvas::Changed, this, &PipelinesView::Say);
  Say();
}

std::vector<Command> PipelinesView::Commands() {
  return {{QStringLiteral("pipelines.fit"),
           tr("Pipelines: show everything"),
           {},
           QStringLiteral("."),
           false,
           [this] { canvas_->Fit(); }},
          {QStringLiteral("pipelines.bottleneck"),
           tr("Pipelines: go to the bottleneck"),
           {},
           QStringLiteral("B"),
           false,
           [this] { JumpToBottleneck(); }},
          {QStringLiteral("pipelines.larger"),
           tr("Pipelines: larger"),
           {},
           QStringLiteral("+"),
           false,
           [this] { canvas_->ZoomBy(kZoomStep); }},
          {QStringLiteral("pipelines.smaller"),
           tr("Pipelines: smaller"),
           {},
           QStringLiteral("-"),
           false,
           [this] { canvas_->ZoomBy(1 / kZoomStep); }}};
}

QAbstractItemModel* PipelinesView::ExportModel() {
  Update(*table_, model_.graph());
  return table_.get();
}

void PipelinesView::Focus(const QString& entity) {
  const PipelineCanvas::Place place = canvas_->Find(entity);
  if (place.stage < 0) return;
  canvas_->SetCurrent(place);
  canvas_->setFocus();
}

void PipelinesView::SetFilter(const QString& text) {
  filter_ = text;
  canvas_->SetFilter(text);
  Say();
}

void PipelinesView::SetDraft(const v1::Plan* draft) {
  model_.SetDraft(draft);
  drawn_.reset();
  if (isVisible()) Draw(*shown_cluster().snapshot());
}

void PipelinesView::focusInEvent(QFocusEvent* event) { canvas_->setFocus(event->reason()); }

void PipelinesView::JumpToBottleneck() {
  const int stage = model_.graph().bottleneck;
  if (stage < 0) {
    Q_EMIT Told(model_.graph().verdict);
    return;
  }
  canvas_->SetCurrent({stage, -1});
  canvas_->setFocus();
}

void PipelinesView::Draw(const session::Snapshot& snapshot) {
  const auto& newest = shown_cluster().snapshot();
  if (newest.get() == &snapshot && drawn_ == newest) return;
  drawn_ = newest;
  const PipelineGraph& graph = model_.Update(snapshot);
  body_->setCurrentIndex(graph.empty.isEmpty() ? 1 : 0);
  SetText(*empty_, graph.empty);
  canvas_->Show(graph, snapshot.at_ms, shown_cluster().live());
  Say();
}

void PipelinesView::Say() {
  const PipelineGraph& graph = model_.graph();
  SetText(*verdict_, graph.verdict.isEmpty()
                         ? QString()
                         : ToneGlyph(graph.verdict_tone) + u' ' + graph.verdict);
  const bool goes = graph.bottleneck >= 0;
  if (jump_->isHidden() == goes) jump_->setVisible(goes);
  QStringList notes;
  if (!graph.stale.isEmpty()) notes << graph.stale;
  const int all = static_cast<int>(graph.cards.size());
  if (!filter_.isEmpty()) {
    notes << (canvas_->matches() == 0 ? tr("Nothing matches the filter. %1 are dimmed.").arg(all)
                                      : tr("%1 of %2 match the filter, the others are dimmed.")
                                            .arg(canvas_->matches())
                                            .arg(all));
  }
  if (const int stage = canvas_->focused_stage(); stage >= 0) {
    notes << tr("Only what comes before and after %1. Esc shows all.")
                 .arg(graph.stages[static_cast<std::size_t>(stage)].name);
  }
  SetText(*note_, notes.join(QStringLiteral("   ")));
  note_->setVisible(!notes.isEmpty());
  clear_->setVisible(!filter_.isEmpty());
  SetText(*zoom_, QStringLiteral("%1 %").arg(std::lround(canvas_->zoom() * 100)));
}

QString PipelinesView::Help() const {
  return tr(
      "How jobs flow: a column for each stage (a pool of instances), a row for each instance, in "
      "the order of their names. A pool that several applications share is one column; workflow "
      "sets stand below each other.\n\n"
      "The sentence above names the narrowest pool and why: ρ is offered work over capacity, a "
      "mean over the NodeManager's window. B goes there.\n\n"
      "A card: state (fill, glyph, word), busy share, jobs in flight of as many as it can compute, "
      "ring slots used, p50 of a job's time (of the last half minute or more; of all jobs since "
      "the process began when there was none lately), and SM active where the device says so. "
      "N/A: nobody says.\n\n"
      "A line between stages: messages a second (its width grows with the logarithm), slots used "
      "in the receiving rings, bytes a second, time on the way. Dashed and “stalled”: the oldest "
      "message has waited for 5 s and nothing is taken out.\n\n"
      "Dashed cards are not here: lost within the last minute, or planned (+). Struck through: "
      "will leave; an arrow: will move.\n\n"
      "Keys: arrows move, Enter on an instance inspects it, Enter on a stage dims all but what is "
      "before and after it (Esc ends that), + and - or Ctrl+wheel zoom, . shows everything, F11 "
      "is full screen. Drag to pan. Below 60 % labels go, below 30 % only stages are left.");
}

}  // namespace onepiece::gui
