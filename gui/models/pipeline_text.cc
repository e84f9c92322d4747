#include "gui/models/pipeline_text.h"

#include <algorithm>
#include <cmath>

#include "gui/models/format.h"
#include "gui/models/permissions.h"

namespace onepiece::gui {
namespace {

/// A pool that is at least so busy is called the bottleneck.
constexpr double kNarrow = 0.85;

QString Number(const std::optional<std::int64_t>& number) {
  return number ? QString::number(*number) : Tr("N/A");
}

QString Of(const std::optional<std::int64_t>& used, const std::optional<std::int64_t>& all) {
  if (!used || !all) return Tr("N/A");
  return QStringLiteral("%1/%2").arg(*used).arg(*all);
}

QString Seconds(const std::optional<double>& seconds) {
  return seconds ? FormatSeconds(*seconds) : Tr("N/A");
}

QString Rate(const std::optional<double>& rate) { return rate ? FormatRate(*rate) : Tr("N/A"); }

/// A share in thousandths, in steps of half a percent: bars that look the same are equal.
int Permille(std::optional<double> share) {
  if (!share || !std::isfinite(*share)) return -1;
  return static_cast<int>(std::lround(std::clamp(*share, 0.0, 1.0) * 200)) * 5;
}

std::optional<double> Share(const std::optional<std::int64_t>& used,
                            const std::optional<std::int64_t>& all) {
  if (!used || !all || *all <= 0) return std::nullopt;
  return static_cast<double>(*used) / static_cast<double>(*all);
}

StatusTone LoadTone(double load) {
  return load >= 1 ? StatusTone::kBad : load >= kNarrow ? StatusTone::kWarning : StatusTone::kGood;
}

QString Service(const std::optional<double>& p50, const std::optional<double>& mean) {
  if (p50) return Tr("p50 %1").arg(FormatSeconds(*p50));
  if (mean) return Tr("mean %1").arg(FormatSeconds(*mean));
  return {};
}

QString MarkOf(const PipelineCard& card, std::int64_t now_ms) {
  if (card.kind == PipelineCard::Kind::kLost) {
    return Tr("seen %1").arg(FormatAge(card.seen_ms, now_ms));
  }
  if (card.kind == PipelineCard::Kind::kPlanned) {
    return card.other_pool.isEmpty() ? Tr("+ from idle")
                                     : Tr("+ from %1").arg(card.other_pool.section(u'/', 0, 0));
  }
  switch (card.fate) {
    case PipelineCard::Fate::kMoves:
      return Tr("→ %1").arg(card.other_pool.section(u'/', 0, 0));
    case PipelineCard::Fate::kLeaves:
      return Tr("leaves");
    case PipelineCard::Fate::kUnconfirmed:
      return Tr("unconfirmed");
    case PipelineCard::Fate::kStays:
      break;
  }
  return card.stale ? Tr("stale") : QString();
}

}  // namespace

std::optional<double> MedianOfBuckets(const std::array<std::uint64_t, 21>& buckets) {
  double all = 0;
  for (const std::uint64_t count : buckets) all += static_cast<double>(count);
  if (all == 0) return std::nullopt;
  double before = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const auto here = static_cast<double>(buckets[i]);
    if (before + here < all / 2) {
      before += here;
      continue;
    }
    const double low = i == 0 ? 0 : std::ldexp(1e-3, static_cast<int>(i) - 1);
    if (i + 1 == buckets.size()) return low;  // The last bucket has no upper bound.
    const double high = std::ldexp(1e-3, static_cast<int>(i));
    return low + (high - low) * (all / 2 - before) / here;
  }
  return std::nullopt;
}

CardLook LookOf(const PipelineCard& card, std::int64_t now_ms) {
  CardLook look;
  look.name = SafeText(card.node_id, 60);
  look.state = card.state;
  look.mark = MarkOf(card, now_ms);
  look.tone = card.tone;
  look.kind = card.kind;
  look.fate = card.fate;
  look.stale = card.stale;
  if (card.kind != PipelineCard::Kind::kLive) return look;
  look.busy = FormatShare(card.utilization);
  look.busy_permille = Permille(card.utilization);
  look.jobs = card.workers ? Of(card.running, card.workers) : Tr("jobs N/A");
  look.running = card.running.value_or(0);
  look.workers = card.workers.value_or(0);
  look.ring = Of(card.ring_used, card.ring_slots);
  look.ring_permille = Permille(Share(card.ring_used, card.ring_slots));
  look.service = Service(card.service_p50_s, card.service_mean_s);
  if (card.sm_active) look.sm = Tr("SM %1").arg(FormatShare(card.sm_active));
  return look;
}

StageLook LookOf(const PipelineStage& stage) {
  StageLook look;
  look.name = stage.name;
  look.kind = stage.kind;
  look.apps = stage.apps.size() > 1 ? Tr("%1 apps").arg(stage.apps.size()) : stage.apps.join(u' ');
  look.bottleneck = stage.bottleneck;
  if (stage.bottleneck) look.badge = Tr("bottleneck");
  if (stage.kind == PipelineStage::Kind::kEntrance || stage.kind == PipelineStage::Kind::kExit) {
    look.counts = QString::number(stage.present);
    const bool in = stage.kind == PipelineStage::Kind::kEntrance;
    look.name = stage.present == 1 ? (in ? Tr("proxy") : Tr("database"))
                                   : (in ? Tr("proxies") : Tr("databases"));
    return look;
  }
  if (stage.kind == PipelineStage::Kind::kIdle) {
    look.counts = Tr("%1 not in use").arg(stage.present);
    return look;
  }
  look.counts = stage.present == 0 ? Tr("no instance")
                : stage.serving == stage.present
                    ? Tr("%1 serve").arg(stage.serving)
                    : Tr("%1 of %2 serve").arg(stage.serving).arg(stage.present);
  const std::optional<double> load = stage.rho ? stage.rho : stage.busy_now;
  look.load = stage.rho        ? Tr("ρ %1").arg(FormatShare(stage.rho))
              : stage.busy_now ? Tr("%1 now").arg(FormatShare(stage.busy_now))
                               : Tr("ρ N/A");
  look.load_permille = Permille(load);
  look.tone = !load ? StatusTone::kUnknown : LoadTone(*load);
  if (stage.serving == 0 && !stage.apps.isEmpty()) look.tone = StatusTone::kBad;
  QStringList work;
  const QString service = Service(stage.service_p50_s, stage.service_mean_s);
  if (!service.isEmpty()) work << service;
  if (stage.queued) work << Tr("%1 queued").arg(*stage.queued);
  look.work = work.join(QStringLiteral(" · "));
  return look;
}

EdgeLook LookOf(const PipelineEdge& edge) {
  EdgeLook look;
  look.known = edge.items_per_s.has_value();
  look.stalled = edge.stalled;
  look.flows = edge.items_per_s.value_or(0) > 0;
  look.rate = Rate(edge.items_per_s);
  if (edge.stalled) look.details << Tr("stalled %1").arg(Seconds(edge.oldest_s));
  look.details << Tr("q %1").arg(Of(edge.ring_used, edge.ring_slots));
  if (edge.bytes_per_s) look.details << Tr("%1/s").arg(FormatBytes(*edge.bytes_per_s));
  if (edge.transfer_s) look.details << Seconds(edge.transfer_s);
  const double rate = std::max(edge.items_per_s.value_or(0), 0.0);
  look.width = 3 + static_cast<int>(std::lround(std::min(3.0 * std::log10(1 + 10 * rate), 13.0)));
  return look;
}

QString AccessibleName(const PipelineCard& card, const PipelineStage& stage, std::int64_t now_ms) {
  QStringList parts = {SafeText(card.node_id, 60), stage.name, card.state};
  if (card.kind == PipelineCard::Kind::kLive) {
    parts << (card.utilization ? Tr("%1 busy").arg(FormatShare(card.utilization))
                               : Tr("utilisation unknown"));
    if (card.running && card.workers) {
      parts << Tr("%1 of %2 in flight").arg(*card.running).arg(*card.workers);
    }
  }
  const QString mark = MarkOf(card, now_ms);
  if (!mark.isEmpty()) parts << mark;
  return parts.join(QStringLiteral(", "));
}

QString AccessibleName(const PipelineStage& stage) {
  const StageLook look = LookOf(stage);
  QStringList parts = {look.name, look.counts};
  if (stage.kind == PipelineStage::Kind::kPool) parts << look.load;
  if (!look.work.isEmpty()) parts << look.work;
  if (!look.badge.isEmpty()) parts << look.badge;
  return parts.join(QStringLiteral(", "));
}

QString TipOf(const PipelineCard& card, const PipelineStage& stage, std::int64_t now_ms) {
  QStringList lines = {AccessibleName(card, stage, now_ms)};
  if (card.kind != PipelineCard::Kind::kLive) return lines.front();
  lines << Tr("Busy since its last report: %1 (%2)")
               .arg(FormatShare(card.utilization), SourceName(card.source));
  lines << Tr("SM active: %1").arg(FormatShare(card.sm_active));
  lines << Tr("Jobs: %1 computed, %2 queued, %3 held")
               .arg(Of(card.running, card.workers), Number(card.queued), Number(card.held));
  lines << Tr("Ring: %1 slots used").arg(Of(card.ring_used, card.ring_slots));
  lines << Tr("A job: p50 about %1, mean %2; waits %3, on its way %4")
               .arg(Seconds(card.service_p50_s), Seconds(card.service_mean_s),
                    Seconds(card.queued_s), Seconds(card.transfer_s));
  lines << (card.jobs == 0 ? Tr("It has finished no job here.")
            : card.measured_s > 0
                ? Tr("Of %1 jobs in %2").arg(card.jobs).arg(FormatSeconds(card.measured_s))
                : Tr("Of %1 jobs since its process began; none lately").arg(card.jobs));
  return lines.join(u'\n');
}

QString TipOf(const PipelineStage& stage) {
  QStringList lines = {AccessibleName(stage)};
  if (stage.kind != PipelineStage::Kind::kPool) return lines.front();
  lines << Tr("Pool %1").arg(SafeText(stage.pool, 120));
  if (!stage.apps.isEmpty()) {
    lines << Tr("Of %1").arg(stage.apps.join(QStringLiteral(", ")));
  }
  lines << Tr("ρ over the NodeManager's window: %1; busy now: %2")
               .arg(FormatShare(stage.rho), FormatShare(stage.busy_now));
  lines << Tr("Jobs: %1 computed, %2 queued; rings %3")
               .arg(Of(stage.running, stage.workers), Number(stage.queued),
                    Of(stage.ring_used, stage.ring_slots));
  lines << Tr("Finished: %1; a job: p50 about %2, mean %3")
               .arg(Rate(stage.jobs_per_s), Seconds(stage.service_p50_s),
                    Seconds(stage.service_mean_s));
  if (stage.min_instances) {
    lines << Tr("At least %1 instances, at most %2")
                 .arg(*stage.min_instances)
                 .arg(stage.max_instances ? QString::number(*stage.max_instances)
                                          : Tr("any number"));
  }
  return lines.join(u'\n');
}

QString TipOf(const PipelineEdge& edge, const PipelineGraph& graph) {
  const auto name = [&](int stage) { return graph.stages[static_cast<std::size_t>(stage)].name; };
  QStringList lines = {Tr("%1 → %2").arg(name(edge.from), name(edge.to))};
  lines << Tr("Messages: %1, %2/s")
               .arg(Rate(edge.items_per_s),
                    edge.bytes_per_s ? FormatBytes(*edge.bytes_per_s) : Tr("N/A"));
  lines << Tr("Receiving rings, of all senders: %1 slots used, the oldest waits %2")
               .arg(Of(edge.ring_used, edge.ring_slots), Seconds(edge.oldest_s));
  lines << Tr("On its way, on average: %1").arg(Seconds(edge.transfer_s));
  if (edge.stalled) lines << Tr("Stalled: messages wait and nothing is taken out");
  return lines.join(u'\n');
}

// Verdict.
namespace {

QString NameOf(const PipelineGraph& graph, const PipelineStage& stage) {
  if (graph.sets.size() < 2) return stage.name;
  const std::string& set = graph.sets[static_cast<std::size_t>(stage.set)].name;
  return Tr("%1 of %2").arg(stage.name, SafeText(set, 40));
}

void Because(PipelineGraph& graph, const QString& why) {
  graph.verdict = Tr("Bottleneck not known yet: %1").arg(why);
  graph.verdict_tone = StatusTone::kUnknown;
}

/// Queued jobs of all pools that report them.
std::int64_t Backlog(const PipelineGraph& graph) {
  std::int64_t sum = 0;
  for (const PipelineStage& stage : graph.stages) sum += stage.queued.value_or(0);
  return sum;
}

void Unserved(PipelineGraph& graph, int index) {
  PipelineStage& stage = graph.stages[static_cast<std::size_t>(index)];
  stage.bottleneck = true;
  graph.bottleneck = index;
  graph.verdict_tone = StatusTone::kBad;
  graph.verdict = Tr("No instance serves %1: jobs of %2 cannot pass.")
                      .arg(NameOf(graph, stage), stage.apps.join(QStringLiteral(", ")));
  if (stage.present > 0) graph.verdict += Tr(" %1 there, not ready.").arg(stage.present);
}

void Narrowest(PipelineGraph& graph, const std::vector<int>& measured, double window_s,
               const QStringList& unmeasured) {
  const auto stage_at = [&](int i) -> PipelineStage& {
    return graph.stages[static_cast<std::size_t>(i)];
  };
  PipelineStage& worst = stage_at(measured[0]);
  graph.bottleneck = measured[0];
  worst.bottleneck = *worst.rho >= kNarrow;
  graph.verdict_tone = LoadTone(*worst.rho);
  const QString name = NameOf(graph, worst), load = FormatShare(worst.rho);
  const QString over =
      window_s > 0 ? Tr("over the last %1").arg(FormatSeconds(window_s)) : Tr("over the window");
  QStringList parts;
  if (worst.bottleneck) {
    parts << Tr("Bottleneck: %1, ρ %2 %3").arg(name, load, over);
    parts << Tr("%1 of %2 instances serve").arg(worst.serving).arg(worst.present);
  } else {
    parts << Tr("No bottleneck: the busiest pool, %1, has ρ %2 %3").arg(name, load, over);
  }
  if (worst.queued) {
    parts << Tr("%1 of all %2 queued jobs wait there").arg(*worst.queued).arg(Backlog(graph));
  }
  if (worst.service_mean_s) parts << Tr("a job takes %1").arg(FormatSeconds(*worst.service_mean_s));
  if (measured.size() > 1) {
    const PipelineStage& next = stage_at(measured[1]);
    parts << Tr("next is %1 with ρ %2").arg(NameOf(graph, next), FormatShare(next.rho));
  }
  graph.verdict = parts.join(QStringLiteral(" · "));
  if (!unmeasured.isEmpty()) {
    graph.verdict += Tr(" · not measured yet: %1").arg(unmeasured.join(QStringLiteral(", ")));
  }
}

void FindBottleneck(const session::Snapshot& snapshot, PipelineGraph& graph) {
  std::vector<int> measured;
  QStringList unmeasured;
  for (int i = 0; i < static_cast<int>(graph.stages.size()); ++i) {
    const PipelineStage& stage = graph.stages[static_cast<std::size_t>(i)];
    if (stage.kind != PipelineStage::Kind::kPool || stage.apps.isEmpty()) continue;
    if (stage.serving == 0) return Unserved(graph, i);
    if (stage.rho) {
      measured.push_back(i);
    } else {
      unmeasured << NameOf(graph, stage);
    }
  }
  if (measured.empty() && unmeasured.isEmpty()) {
    return Because(graph, Tr("there is no application, so no pool."));
  }
  const auto& elasticity = snapshot.elasticity;
  if (elasticity.value == nullptr) {
    return Because(graph, elasticity.error.empty()
                              ? Tr("the NodeManager has not told what it measures.")
                              : Tr("the NodeManager does not tell what it measures: %1")
                                    .arg(SafeText(elasticity.error, 120)));
  }
  const double window_s = elasticity.value->window_s();
  if (measured.empty()) {
    return Because(
        graph,
        window_s > 0
            ? Tr("no pool has been measured for a whole window (%1).").arg(FormatSeconds(window_s))
            : Tr("no pool has been measured for a whole window."));
  }
  std::stable_sort(measured.begin(), measured.end(), [&](int a, int b) {
    const PipelineStage& x = graph.stages[static_cast<std::size_t>(a)];
    const PipelineStage& y = graph.stages[static_cast<std::size_t>(b)];
    // The page shows whole percents. Of pools that are equally busy there, the one with more queued
    // jobs is narrower.
    const auto px = std::lround(*x.rho * 100), py = std::lround(*y.rho * 100);
    return px != py ? px > py : x.queued.value_or(0) > y.queued.value_or(0);
  });
  Narrowest(graph, measured, window_s, unmeasured);
}

}  // namespace

void Judge(const session::Snapshot& snapshot, PipelineGraph& graph) {
  if (snapshot.cluster.value == nullptr) {
    graph.empty =
        snapshot.cluster.error.empty()
            ? Tr("Nothing has been heard of this cluster yet. Wait a moment; if it stays, look at "
                 "the connection above, or choose another one (Ctrl+L).")
            : Tr("Nothing is known of this cluster: %1. Check the connection (Ctrl+L) or open a "
                 "recording (Ctrl+O).")
                  .arg(SafeText(snapshot.cluster.error, 160));
    return;
  }
  if (AreNodesHidden(snapshot)) {
    graph = {};
    graph.empty =
        Tr("Instances are shown to those who have the scope read. Your own jobs are on "
           "the page Jobs.");
    return;
  }
  if (graph.stages.empty()) {
    graph.empty =
        snapshot.cluster.value->workflows().empty()
            ? Tr("No application and no instance yet. Apply a workflow with “onepiece workflow "
                 "apply FILE”, and start instances.")
            : Tr("There are applications, but no instance, proxy or database. Start some, or see "
                 "“onepiece status”.");
    return;
  }
  QStringList stale;
  const auto note = [&](const QString& what, const std::string& error, std::int64_t as_of_ms) {
    if (error.empty()) return;
    stale
        << Tr("%1 of %2: %3").arg(what, FormatAge(as_of_ms, snapshot.at_ms), SafeText(error, 120));
  };
  note(Tr("nodes"), snapshot.cluster.error, snapshot.cluster.as_of_ms);
  note(Tr("rings"), snapshot.rings.error, snapshot.rings.as_of_ms);
  note(Tr("measurements"), snapshot.elasticity.error, snapshot.elasticity.as_of_ms);
  if (!stale.isEmpty()) {
    graph.stale = Tr("Not newer: %1").arg(stale.join(QStringLiteral("; ")));
  }
  FindBottleneck(snapshot, graph);
}

}  // namespace onepiece::gui
