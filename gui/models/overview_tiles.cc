#include "gui/models/overview_tiles.h"

#include <QStringList>
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

/// Adds a part's age and error to a tile that is made from it.
template <typename T>
void Qualify(OverviewTile& tile, const session::Part<T>& part, std::int64_t now_ms) {
  if (part.error.empty()) return;
  tile.tone = StatusTone::kUnknown;
  tile.detail =
      part.value == nullptr
          ? SafeText(part.error, 80)
          : Tr("stale, %1: %2").arg(FormatAge(part.as_of_ms, now_ms), SafeText(part.error, 60));
}

OverviewTile UtilizationTile(const session::Snapshot& snapshot) {
  OverviewTile tile{Tr("Utilisation"), Tr("N/A"), Tr("nothing serves"), QStringLiteral("gpus"), {}};
  if (snapshot.cluster.value == nullptr) return tile;
  std::vector<std::pair<double, const v1::Node*>> loads;
  bool mixed = false;
  for (const v1::Node& node : snapshot.cluster.value->nodes()) {
    const bool computes = node.role() == v1::INSTANCE && node.state() == v1::Node::READY &&
                          node.activity() != v1::IDLE && node.activity() != v1::DRAINED;
    if (!computes || !node.has_load() || node.load().sample_unix_ms() == 0) continue;
    loads.emplace_back(node.load().utilization(), &node);
    mixed = mixed ||
            node.load().utilization_source() != loads.front().second->load().utilization_source();
  }
  if (loads.empty()) return tile;
  std::sort(loads.begin(), loads.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  tile.value = Tr("%1 median").arg(FormatShare(loads[loads.size() / 2].first));
  tile.detail =
      Tr("min %1 (%2) · %3")
          .arg(FormatShare(loads.front().first), SafeText(loads.front().second->node_id(), 24),
               mixed ? Tr("several sources")
                     : SourceName(loads.front().second->load().utilization_source()));
  return tile;
}

OverviewTile RingTile(const session::Snapshot& snapshot) {
  OverviewTile tile{
      Tr("Fullest ring"), Tr("N/A"), Tr("no ring has answered"), QStringLiteral("rings"), {}};
  if (snapshot.rings.value == nullptr) return tile;
  const session::RingEntry* worst = nullptr;
  double most = -1;
  int silent = 0;
  for (const session::RingEntry& ring : *snapshot.rings.value) {
    if (!ring.error.empty()) ++silent;
    if (ring.health.capacity_bytes() == 0) continue;
    const auto share = [](std::uint64_t used, std::uint64_t all) {
      return all == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(all);
    };
    const double full = std::max(share(ring.health.used_bytes(), ring.health.capacity_bytes()),
                                 share(ring.health.used_slots(), ring.health.slots()));
    if (full > most) most = full, worst = &ring;
  }
  if (worst == nullptr) return tile;
  tile.value = FormatShare(most);
  tile.detail = Tr("%1 · oldest %2")
                    .arg(SafeText(worst->node_id, 24),
                         FormatSeconds(static_cast<double>(worst->health.oldest_age_ms()) * 1e-3));
  if (silent > 0)
    tile.detail = Tr("%1 · %2 do not answer").arg(SafeText(worst->node_id, 24)).arg(silent);
  tile.entity = QStringLiteral("ring/") + QString::fromStdString(worst->node_id);
  tile.tone = most >= 0.9   ? StatusTone::kBad
              : most >= 0.7 ? StatusTone::kWarning
                            : StatusTone::kGood;
  return tile;
}

OverviewTile NodeTile(const session::Snapshot& snapshot) {
  OverviewTile tile{
      Tr("Nodes"), Tr("N/A"), Tr("no NodeManager has answered"), QStringLiteral("nodes"), {}};
  if (snapshot.cluster.value == nullptr) return tile;
  int up = 0, dead = 0, starting = 0;
  std::map<v1::Activity, int> activities;
  for (const v1::Node& node : snapshot.cluster.value->nodes()) {
    if (node.state() == v1::Node::DEAD) {
      ++dead;
      continue;
    }
    ++up;
    if (node.role() == v1::INSTANCE) {
      ++activities[node.activity()];
    } else if (node.state() == v1::Node::STARTING) {
      ++starting;
    }
  }
  tile.value = Tr("%1 up").arg(up);
  if (dead > 0) tile.value += Tr(", %1 lost").arg(dead);
  if (activities.contains(v1::STUCK)) tile.value += Tr(", %1 stuck").arg(activities[v1::STUCK]);
  QStringList words;
  for (const auto& [activity, count] : activities) {
    words << QStringLiteral("%1 %2").arg(count).arg(
        activity == v1::DRAINED ? Tr("drained") : ActivityName(activity));
  }
  if (starting > 0) words << Tr("%1 starting").arg(starting);
  tile.detail = words.join(QStringLiteral(" · "));
  tile.tone = activities.contains(v1::STUCK) || dead > 0 ? StatusTone::kBad
              : activities.contains(v1::QUARANTINED)     ? StatusTone::kWarning
                                                         : StatusTone::kGood;
  return tile;
}

}  // namespace

void OverviewTiles::CountJobs(const session::Snapshot& snapshot) {
  const auto& list = snapshot.jobs.value;
  if (list == counted_ && snapshot.at_ms - counted_at_ms_ < 1000 &&
      snapshot.at_ms >= counted_at_ms_) {
    return;
  }
  counted_ = list;
  counted_at_ms_ = snapshot.at_ms;
  jobs_ = {};
  if (list == nullptr) return;
  std::vector<double> latencies;
  for (const session::JobEntry& entry : list->jobs) {
    const v1::Job& job = *entry.job;
    const bool active = job.state() == v1::Job::RUNNING || job.state() == v1::Job::QUEUED;
    if (active && entry.certainty != session::Certainty::kKnown) {
      ++jobs_.uncertain;
    } else if (active) {
      ++(job.state() == v1::Job::RUNNING ? jobs_.running : jobs_.queued);
    } else if (job.has_end_time() && ToMs(job.end_time()) > snapshot.at_ms - kWindowMs) {
      if (job.state() == v1::Job::FAILED) ++jobs_.failed;
      if (job.state() != v1::Job::SUCCEEDED) continue;
      ++jobs_.succeeded;
      latencies.push_back(static_cast<double>(ToMs(job.end_time()) - ToMs(job.create_time())) *
                          1e-3);
    }
  }
  if (latencies.empty()) return;
  // The nearest-rank percentile: the smallest latency that 95 % of the jobs do not exceed.
  const auto rank = static_cast<std::ptrdiff_t>((latencies.size() * 95 + 99) / 100 - 1);
  std::nth_element(latencies.begin(), latencies.begin() + rank, latencies.end());
  jobs_.p95_s = latencies[static_cast<std::size_t>(rank)];
}

std::array<OverviewTile, 6> OverviewTiles::Of(const session::Snapshot& snapshot) {
  CountJobs(snapshot);
  const bool known = snapshot.jobs.value != nullptr;
  const bool truncated = known && snapshot.jobs.value->truncated;
  const QString at_least = truncated ? QStringLiteral("≥ ") : QString();
  const QString page = QStringLiteral("jobs");

  OverviewTile jobs{Tr("Jobs"), Tr("N/A"), Tr("no proxy has answered"), page, {}};
  OverviewTile throughput{Tr("Throughput"), Tr("N/A"), Tr("no proxy has answered"), page, {}};
  OverviewTile latency{Tr("p95 latency"), Tr("N/A"), Tr("no proxy has answered"), page, {}};
  if (known) {
    jobs.value = at_least + Tr("%1 running").arg(jobs_.running);
    jobs.detail = Tr("%1 queued").arg(jobs_.queued);
    if (jobs_.uncertain > 0) jobs.detail += Tr(" · %1 unknown").arg(jobs_.uncertain);
    jobs.tone = jobs_.running > 0 ? StatusTone::kBusy : StatusTone::kNeutral;
    throughput.value =
        at_least + Tr("%1/min").arg(QString::number(jobs_.succeeded / (kWindowMs / 60e3), 'f', 1));
    throughput.detail =
        Tr("%1 succeeded, %2 failed in 15 min").arg(jobs_.succeeded).arg(jobs_.failed);
    throughput.tone = jobs_.failed > 0 ? StatusTone::kWarning : StatusTone::kNeutral;
    if (jobs_.succeeded >= kMinSamples) latency.value = FormatSeconds(jobs_.p95_s);
    latency.detail = jobs_.succeeded >= kMinSamples
                         ? Tr("of %1 jobs finished in 15 min").arg(jobs_.succeeded)
                         : Tr("insufficient data: %1 of %2 jobs in 15 min")
                               .arg(jobs_.succeeded)
                               .arg(kMinSamples);
  }
  std::array<OverviewTile, 6> tiles = {
      jobs, throughput, latency, UtilizationTile(snapshot), RingTile(snapshot), NodeTile(snapshot)};
  for (std::size_t i = 0; i < 3; ++i) Qualify(tiles[i], snapshot.jobs, snapshot.at_ms);
  Qualify(tiles[3], snapshot.cluster, snapshot.at_ms);
  Qualify(tiles[4], snapshot.rings, snapshot.at_ms);
  Qualify(tiles[5], snapshot.cluster, snapshot.at_ms);
  return tiles;
}

}  // namespace onepiece::gui
