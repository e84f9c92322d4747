#include "gui/views/rings.h"

#include <QHBoxLayout>
#include <QPainter>
#include <QSplitter>
#include <QVBoxLayout>
#include <algorithm>
#include <cmath>
#include <limits>

#include "gui/views/plain_label.h"
#include "gui/views/tone.h"

namespace onepiece::gui {
namespace {

/// If there are more rings than lines, the lines are chosen anew after this time.
constexpr std::int64_t kChooseMs = 60'000;

double Share(std::uint64_t used, std::uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(used) / static_cast<double>(all);
}

}  // namespace

SlotStrip::SlotStrip(QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("Slots of the ring"));
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
}

void SlotStrip::Show(const v1::RingHealth* health, bool known) {
  there_ = health != nullptr;
  known_ = known;
  health_ = there_ ? *health : v1::RingHealth();
  text_.clear();
  if (there_) {
    const std::uint64_t free = health_.slots() - std::min(health_.used_slots(), health_.slots());
    text_ =
        tr("Slots: %1 filled, %2 free; bytes: %3 of %4; corrupt since it began: %5. Which slots "
           "are filled is not told.")
            .arg(health_.used_slots())
            .arg(free)
            .arg(FormatBytes(static_cast<double>(health_.used_bytes())),
                 FormatBytes(static_cast<double>(health_.capacity_bytes())))
            .arg(health_.counters().corrupted());
    if (!known_) text_ += tr(" The last known numbers.");
  }
  setToolTip(text_);
  if (text_ != accessibleDescription()) setAccessibleDescription(text_);
  update();
}

QSize SlotStrip::sizeHint() const {
  const int line = fontMetrics().height();
  return {40 * line, 2 * line + 12};
}

void SlotStrip::PaintBar(QPainter& painter, const QRect& bar, double share) const {
  const QPalette colors = palette();
  painter.fillRect(bar, colors.color(QPalette::Base));
  const auto slots = static_cast<double>(std::max<std::uint64_t>(1, health_.slots()));
  const double buckets =
      std::min({static_cast<double>(bar.width()), slots, static_cast<double>(kMaxBuckets)});
  // A used ring never looks empty, and only a full ring looks full.
  double filled = std::clamp(share, 0.0, 1.0) * buckets;
  filled = share > 0 ? std::max(1.0, std::floor(filled)) : 0;
  const int wide = static_cast<int>(filled / buckets * bar.width());
  const QRect used(bar.left(), bar.top(), wide, bar.height());
  const QColor fill = SeriesColor(0, colors);
  painter.fillRect(used, fill);
  painter.fillRect(used, QBrush(colors.color(QPalette::Base), Qt::FDiagPattern));
  if (!known_)
    painter.fillRect(bar, QBrush(colors.color(QPalette::PlaceholderText), Qt::BDiagPattern));
  const double one = bar.width() / buckets;
  painter.setPen(colors.color(QPalette::Mid));
  if (one >= 4) {
    for (int i = 1; i < static_cast<int>(buckets); ++i) {
      const int x = bar.left() + static_cast<int>(i * one);
      painter.drawLine(x, bar.top(), x, bar.bottom());
    }
  }
  painter.drawRect(bar.adjusted(0, 0, -1, -1));
}

void SlotStrip::paintEvent(QPaintEvent* /*event*/) {
  if (!there_) return;
  QPainter painter(this);
  const int line = fontMetrics().height();
  const QRect bar(0, 2, width(), line);
  PaintBar(painter, bar, Share(health_.used_slots(), health_.slots()));
  painter.setPen(palette().color(QPalette::WindowText));
  painter.drawText(QRect(0, line + 6, width(), line + 4), Qt::AlignLeft | Qt::AlignVCenter,
                   fontMetrics().elidedText(text_, Qt::ElideRight, width()));
}

RingsView::RingsView(ShownCluster& shown_cluster, QWidget* parent)
    : View(QStringLiteral("rings"), tr("Rings"), shown_cluster, parent),
      feed_(shown_cluster, {}),
      history_(shown_cluster, {.refresh_ms = 10'000, .max_points = 90}),
      headline_(PlainLabel(this)),
      verdict_(PlainLabel(this)),
      history_note_(PlainLabel(this)),
      panel_(new TablePanel(tr("Rings"), &rings_.table(), this)),
      strip_(new SlotStrip(this)),
      tabs_(new QTabWidget(this)),
      feed_note_(PlainLabel(this)),
      producers_(new TablePanel(tr("Producers of the ring"), &rings_.producers(), this)),
      map_(new Heatmap(tr("Used slots over time"), cells_, this)) {
  headline_->setObjectName(QStringLiteral("headline"));
  headline_->setToolTip(RingThresholdsText());
  verdict_->setObjectName(QStringLiteral("verdict"));
  producers_->SetEmptyText(tr("No producer has ever been enrolled."));
  map_->SetDense(true);
  panel_->FitColumns();
  const StatusTone worst = RingStateTone(RingState::kStuckProducer);
  panel_->Reserve(1, ToneGlyph(worst) + u' ' + RingStateName(RingState::kStuckProducer));
  producers_->FitColumns();
  auto* flow = new QWidget(this);
  auto* flow_layout = new QVBoxLayout(flow);
  auto* line = new QHBoxLayout;
  const std::array titles = {tr("Used slots"), tr("Taken out"), tr("Oldest message")};
  for (std::size_t i = 0; i < kCharts; ++i) {
    charts_[i] = new TimeChart(titles[i], flow);
    line->addWidget(charts_[i], 1);
  }
  flow_layout->addWidget(feed_note_);
  flow_layout->addLayout(line, 1);
  auto* past = new QWidget(this);
  auto* past_layout = new QVBoxLayout(past);
  past_layout->addWidget(history_note_);
  past_layout->addWidget(map_, 1);
  tabs_->addTab(flow, tr("&Flow"));
  tabs_->addTab(producers_, tr("&Producers"));
  tabs_->addTab(past, tr("&All rings over time"));
  auto* lower = new QWidget(this);
  auto* lower_layout = new QVBoxLayout(lower);
  lower_layout->setContentsMargins(0, 0, 0, 0);
  lower_layout->addWidget(verdict_);
  lower_layout->addWidget(strip_);
  lower_layout->addWidget(tabs_, 1);
  auto* splitter = new QSplitter(Qt::Vertical, this);
  splitter->addWidget(panel_);
  splitter->addWidget(lower);
  splitter->setChildrenCollapsible(false);
  splitter->setSizes({1000, 1000});
  auto* layout = new QVBoxLayout(this);
  layout->addWidget(headline_);
  layout->addWidget(splitter, 1);
  connect(panel_, &TablePanel::Current, this, [this] {
    DrawRing();
    WantSeries();
    feed_.Refresh();
  });
  connect(panel_, &TablePanel::ClearWanted, this, &View::ClearFilterWanted);
  connect(panel_, &TablePanel::Activated, this, [this](const QString& key) {
    Q_EMIT Wanted(QString(), QStringLiteral("node/") + key.mid(5));
  });
  connect(map_, &Heatmap::Picked, this,
          [this](const QString& key) { panel_->Select(key.section(u'@', 0, -2)); });
  connect(&feed_, &SeriesFeed::Changed, this, &RingsView::DrawCharts);
  connect(&history_, &SeriesFeed::Changed, this, &RingsView::DrawHistory);
  connect(tabs_, &QTabWidget::currentChanged, this,
          [this] { WantHistory(this->shown_cluster().snapshot()->at_ms); });
  DrawRing();
}

QString RingsView::Help() const {
  return tr("Every instance and database takes its messages out of a ring of its own; here is how "
            "each is.\n\n") +
         RingThresholdsText() +
         tr("\n\nThe sentence below the table says which numbers decided. The strip shows how much "
            "of the ring's memory is filled: a ring tells how many slots are used, not which, so "
            "filled ones are drawn from the left. Put/s is Get/s and what the used slots grew "
            "by.\n\n"
            "Enter opens the ring's node. “All rings over time” shows the largest share of slots "
            "used in every 15 seconds of the last 15 minutes; Enter on a cell selects its ring. "
            "N/A is not known, which is not 0.");
}

void RingsView::Focus(const QString& entity) {
  rings_.Show(*shown_cluster().snapshot());
  const QString key =
      entity.startsWith(u"node/") ? QStringLiteral("ring/") + entity.mid(5) : entity;
  to_focus_ = panel_->Select(key) ? QString() : key;
  if (to_focus_.isEmpty()) panel_->setFocus();
}

void RingsView::SetFilter(const QString& text) { panel_->SetFilter(text); }

void RingsView::Draw(const session::Snapshot& snapshot) {
  rings_.Show(snapshot);
  const StatusTone tone = rings_.tone();
  headline_->setText(tone == StatusTone::kNeutral ? rings_.headline()
                                                  : ToneGlyph(tone) + u' ' + rings_.headline());
  panel_->SetEmptyText(rings_.headline());
  if (!to_focus_.isEmpty() && panel_->Select(to_focus_)) to_focus_.clear();
  if (panel_->current().isEmpty()) {
    for (const QString& worst : rings_.Worst(1)) panel_->Select(worst);
  }
  DrawRing();
  WantSeries();
  feed_.Refresh();
  WantHistory(snapshot.at_ms);
}

void RingsView::DrawRing() {
  const RingRow* row = rings_.Find(panel_->current());
  verdict_->setText(row == nullptr
                        ? tr("Select a ring above to see more of it.")
                        : QStringLiteral("%1 · %2 %3: %4")
                              .arg(row->node, ToneGlyph(RingStateTone(row->verdict.state)),
                                   RingStateName(row->verdict.state), row->verdict.text));
  const bool there = row != nullptr && row->ring.as_of_ms > 0;
  strip_->Show(there ? &row->ring.health : nullptr,
               there && row->verdict.state != RingState::kNotKnown);
  rings_.ShowProducers(panel_->current());
}

SeriesFeed::Wanted RingsView::Series(const QString& key, const char* field, const char* unit,
                                     const QString& title,
                                     std::function<double(const RingRow&)> get) const {
  const auto now = [this, key, get = std::move(get)](const session::Snapshot&) {
    const RingRow* row = rings_.Find(key);
    return row == nullptr || !row->ring.error.empty() || row->ring.as_of_ms <= 0
               ? std::numeric_limits<double>::quiet_NaN()
               : get(*row);
  };
  return {key.toStdString() + "/" + field, unit, title, now};
}

void RingsView::WantSeries() {
  const QString key = panel_->current();
  const RingRow* row = rings_.Find(key);
  if (row == nullptr || key == wanted_) return;
  wanted_ = key;
  const auto rate = [](double session::RingRates::*one) {
    return [one](const RingRow& at) {
      return at.ring.rates ? (*at.ring.rates).*one : std::numeric_limits<double>::quiet_NaN();
    };
  };
  feed_.Want(
      {Series(key, "used_slots", "1", tr("used"),
              [](const RingRow& at) { return static_cast<double>(at.ring.health.used_slots()); }),
       Series(key, "messages_per_s", "1/s", tr("messages"),
              rate(&session::RingRates::messages_per_s)),
       Series(key, "stalls_per_s", "1/s", tr("stalls"), rate(&session::RingRates::stalls_per_s)),
       Series(key, "corrupted_per_s", "1/s", tr("corrupt"),
              rate(&session::RingRates::corrupted_per_s)),
       Series(key, "oldest_age_ms", "ms", tr("waits"), [](const RingRow& at) {
         return static_cast<double>(at.ring.health.oldest_age_ms());
       })});
}

void RingsView::DrawCharts() {
  const auto& series = feed_.series();
  if (series.size() != 5) return;
  feed_note_->setText(feed_.note());
  feed_note_->setVisible(!feed_.note().isEmpty());
  charts_[0]->SetSeries({series[0]});
  charts_[1]->SetSeries({series[1], series[2], series[3]});
  charts_[2]->SetSeries({series[4]});
  for (TimeChart* chart : charts_) {
    chart->SetInterval(feed_.interval());
    chart->SetNow(feed_.now_ms());
  }
  std::vector<ChartThreshold> full;
  if (const RingRow* row = rings_.Find(wanted_); row != nullptr && row->ring.health.slots() > 0) {
    full = {{tr("backpressured"),
             RingThresholds::kFull * static_cast<double>(row->ring.health.slots())}};
  }
  charts_[0]->SetThresholds(std::move(full));
  charts_[2]->SetThresholds({{tr("stuck"), static_cast<double>(RingThresholds::kWaitingMs)}});
}

void RingsView::WantHistory(std::int64_t now_ms) {
  if (tabs_->currentIndex() != 2) return;
  const int rings = rings_.table().rowCount();
  const bool old = std::abs(now_ms - history_chosen_ms_) > kChooseMs;
  const bool all = static_cast<std::size_t>(rings) <= kHistoryRings;
  const bool replaced = all && std::ranges::any_of(history_keys_, [this](const QString& key) {
                          return rings_.Find(key) == nullptr;
                        });
  if (rings != history_of_ || replaced || (old && !all)) {
    history_chosen_ms_ = now_ms;
    history_of_ = rings;
    history_keys_ = rings_.Worst(kHistoryRings);
    std::ranges::sort(history_keys_);
    std::erase_if(history_slots_, [this](const auto& known) {
      return !std::ranges::binary_search(history_keys_, known.first);
    });
    std::vector<SeriesFeed::Wanted> wanted;
    for (const QString& key : history_keys_) {
      const RingRow* row = rings_.Find(key);
      wanted.push_back(Series(key, "used_slots", "1", row->node, [](const RingRow& at) {
        return static_cast<double>(at.ring.health.used_slots());
      }));
    }
    history_.Want(std::move(wanted));
  }
  history_.Refresh();
}

void RingsView::DrawHistory() {
  if (history_.series().size() != history_keys_.size()) return;
  std::vector<double> slots;
  for (const QString& key : history_keys_) {
    const RingRow* row = rings_.Find(key);
    double& known = history_slots_[key];  // A ring that is gone keeps the number that it had.
    if (row != nullptr && row->ring.as_of_ms > 0) {
      known = static_cast<double>(row->ring.health.slots());
    }
    slots.push_back(known);
  }
  const history::Interval interval = history_.interval();
  cells_.Show(RingHistory(history_.series(), history_keys_, slots, interval, kHistoryColumns));
  QString note = tr("The largest share of slots used in every %1, from %2 to %3.")
                     .arg(FormatSeconds(static_cast<double>(interval.to_ms - interval.from_ms) *
                                        1e-3 / kHistoryColumns),
                          FormatTime(interval.from_ms, history_.now_ms()),
                          FormatTime(interval.to_ms, history_.now_ms()));
  if (static_cast<std::size_t>(history_of_) > history_keys_.size()) {
    note +=
        tr(" %1 of %2 rings: the worst and fullest.").arg(history_keys_.size()).arg(history_of_);
  }
  if (!history_.note().isEmpty()) note += u' ' + history_.note();
  history_note_->setText(note);
  map_->setAccessibleDescription(note);
}

}  // namespace onepiece::gui
