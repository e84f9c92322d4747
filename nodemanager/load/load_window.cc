#include "nodemanager/load/load_window.h"

#include <utility>

#include "cluster/base/seconds.h"
#include "cluster/capacity/capacity_model.h"
#include "nodemanager/load/clean.h"

namespace onepiece::nodemanager {
namespace {

// Nobody can check what a node says of the time before its first report. But no job takes longer
// than this on average.
constexpr double kLongestPastJobS = 3600;
// AskedLately() is about a second. Two reports that come twice a second may cover a little less.
constexpr double kLatelyS = 0.9;
// Reports that come faster are merged.
constexpr double kLatelyStepS = 0.2;

// By application and stage.
std::map<std::pair<std::string, std::string>, const v1::StageLoad*> ByKey(
    const v1::NodeLoad& load) {
  std::map<std::pair<std::string, std::string>, const v1::StageLoad*> by_key;
  for (const v1::StageLoad& stage : load.stages()) by_key[{stage.app_id(), stage.stage()}] = &stage;
  return by_key;
}

capacity::TermSums TermsOf(const v1::CostSums& told) {
  capacity::TermSums sums{.terms = told.xy_size(), .jobs = told.jobs(), .yy = told.yy()};
  std::ranges::copy(told.xx(), sums.xx.begin());
  std::ranges::copy(told.xy(), sums.xy.begin());
  return sums;
}

// Sums that fell, or that have other terms, have begun anew.
capacity::TermSums TermsBetween(const v1::CostSums& from, const v1::CostSums& to) {
  capacity::TermSums sums = TermsOf(to);
  if (from.xy_size() == to.xy_size() && from.jobs() <= to.jobs()) sums.Add(TermsOf(from), -1);
  return sums;
}

LoadWindow::Work Between(const v1::StageLoad& from, const v1::StageLoad& to) {
  return {.jobs = to.jobs() - from.jobs(),
          .failures = to.failures() - from.failures(),
          .units = to.units() - from.units(),
          .compute_s = to.compute_s() - from.compute_s(),
          .squares_s2 = to.compute_squares_s2() - from.compute_squares_s2(),
          .queued_s = to.queued_s() - from.queued_s(),
          .transfer_s = to.transfer_s() - from.transfer_s(),
          .terms = TermsBetween(from.cost_sums(), to.cost_sums())};
}

void AddTo(LoadWindow::Work& sum, const LoadWindow::Work& more) {
  sum.jobs += more.jobs;
  sum.failures += more.failures;
  sum.units += more.units;
  sum.compute_s += more.compute_s;
  sum.squares_s2 += more.squares_s2;
  sum.queued_s += more.queued_s;
  sum.transfer_s += more.transfer_s;
  sum.terms.Add(more.terms);
}

// Returns the bucket into which `now` falls, and drops buckets that ended more than a window
// before.
template <typename Buckets>
auto& BucketAt(Buckets& buckets, base::MonotonicTime now, base::Duration width,
               base::Duration window) {
  if (buckets.empty() || now - buckets.back().begin >= width) buckets.push_back({now, {}});
  while (buckets.front().begin + width < now - window) buckets.pop_front();
  return buckets.back().sums;
}

}  // namespace

std::string LoadWindow::Add(const std::string& node_id, std::uint64_t incarnation,
                            const std::string& pool, const v1::NodeLoad& load,
                            base::MonotonicTime now) {
  ForgetSilent(now);
  const auto [place, is_new] = nodes_.try_emplace(node_id);
  Node& node = place->second;
  if (!is_new && incarnation < node.incarnation) return "of an incarnation that has ended";
  const bool first = is_new || incarnation != node.incarnation;
  if (first) node = {.incarnation = incarnation, .pool = pool, .first = now, .newest = now};
  now = std::max(now, node.newest);
  CleanedReport report = CleanReport(load, {.last = first ? nullptr : &node.last,
                                            .since_last = now - node.newest,
                                            .since_first = now - node.first,
                                            .compute_at_first_s = node.first_compute_s});
  if (first) {
    for (const v1::StageLoad& stage : report.load.stages())
      node.first_compute_s += stage.compute_s();
    AddPast(pool, report.load, now);
  } else {
    // What has ended since the last report was most likely done in the pool that the node served
    // then.
    AddWork(node.pool.empty() ? pool : node.pool, node.last, report.load, now);
    AddAsked(node, report.load, now);
  }
  if (node.pool != pool) {
    node.pool = pool;
    node.usage.clear();
  }
  AddUsage(node,
           report.utilization_is_good ? std::optional(report.load.utilization()) : std::nullopt,
           now);
  for (const v1::StageLoad& stage : report.load.stages()) {
    if (stage.load_s() > 0 && (load_s_.size() < kMaxPools || load_s_.contains(stage.stage())))
      load_s_[stage.stage()] = stage.load_s();
  }
  node.newest = now;
  node.last = std::move(report.load);
  return report.wrong;
}

void LoadWindow::AddUsage(Node& node, std::optional<double> utilization,
                          base::MonotonicTime now) const {
  std::deque<Usage>& usage = node.usage;
  if (usage.empty()) return usage.push_back({.at = now});
  Usage next = usage.back();
  const base::Duration gap = now - next.at;
  next.at = now;
  // Nobody knows what the node did during a long silence, so that time is not covered.
  if (utilization.has_value() && gap <= FreshFor()) {
    next.covered_s += base::ToSeconds(gap);
    next.busy_s += *utilization * base::ToSeconds(gap);
  }
  // The newest entry replaces the one before it within a bucket's width. Running sums stay right
  // without it.
  if (usage.size() >= 2 && now - usage[usage.size() - 2].at < BucketWidth()) usage.pop_back();
  usage.push_back(next);
  while (usage.size() >= 2 && usage[1].at <= now - window_) usage.pop_front();
}

void LoadWindow::AddWork(const std::string& pool, const v1::NodeLoad& from, const v1::NodeLoad& to,
                         base::MonotonicTime now) {
  const auto before = ByKey(from);
  for (const auto& [key, stage] : ByKey(to)) {
    const auto earlier = before.find(key);
    const Work work = Between(
        earlier == before.end() ? v1::StageLoad::default_instance() : *earlier->second, *stage);
    // Compute time alone counts too: a job that was handed over took time here and ends elsewhere.
    if (work.jobs == 0 && work.failures == 0 && work.compute_s <= 0) continue;
    WorkBuckets& buckets = WorkBucketsOf(pool, key);
    if (buckets.empty() || now - buckets.back().begin >= BucketWidth())
      buckets.push_back({now, {}});
    AddTo(buckets.back().sums, work);
    ForgetOld(buckets, now);
  }
}

// Takes the counts of a node's first report, so that a new leader knows what jobs cost before the
// first one ends. They go into a bucket that is older than the window.
void LoadWindow::AddPast(const std::string& pool, const v1::NodeLoad& load,
                         base::MonotonicTime now) {
  if (pool.empty()) return;
  for (const v1::StageLoad& stage : load.stages()) {
    const Work work = Between(v1::StageLoad::default_instance(), stage);
    if (work.jobs == 0 || work.compute_s > kLongestPastJobS * static_cast<double>(work.jobs))
      continue;
    WorkBuckets& buckets = WorkBucketsOf(pool, {stage.app_id(), stage.stage()});
    const base::MonotonicTime long_ago = now - window_ - 2 * BucketWidth();
    if (buckets.empty() || buckets.front().begin > long_ago) buckets.push_front({long_ago, {}});
    AddTo(buckets.front().sums, work);
    ForgetOld(buckets, now);
  }
}

// Drops what ended before the window, unless it is among the last kMinSamples jobs.
void LoadWindow::ForgetOld(WorkBuckets& buckets, base::MonotonicTime now) const {
  std::uint64_t jobs = 0;
  for (const auto& bucket : buckets) jobs += bucket.sums.jobs;
  while (buckets.size() > 1 && buckets.front().begin + BucketWidth() < now - window_) {
    const Work& oldest = buckets.front().sums;
    if (oldest.jobs > 0 && jobs - oldest.jobs < capacity::kMinSamples) return;
    jobs -= oldest.jobs;
    buckets.pop_front();
  }
}

// Makes room by dropping the pool, or the stage of an application, that has had no work for
// longest.
LoadWindow::WorkBuckets& LoadWindow::WorkBucketsOf(const std::string& pool, const Key& key) {
  const auto newest = [](const auto& work) { return work.second.back().begin; };
  if (work_.size() >= kMaxPools && !work_.contains(pool)) {
    work_.erase(std::ranges::min_element(work_, {}, [&](const auto& of_pool) {
      return newest(*std::ranges::max_element(of_pool.second, {}, newest));
    }));
  }
  std::map<Key, WorkBuckets>& works = work_[pool];
  if (works.size() >= kMaxWorks && !works.contains(key))
    works.erase(std::ranges::min_element(works, {}, newest));
  return works[key];
}

void LoadWindow::Count::Add(const v1::Demand& from, const v1::Demand& to) {
  const auto new_rejected = static_cast<double>(to.rejected() - from.rejected());
  const double new_jobs = static_cast<double>(to.admitted() - from.admitted()) + new_rejected;
  jobs += new_jobs;
  rejected += new_rejected;
  units += std::max(0.0, to.units() - from.units());
  for (const v1::StageTerms& told : to.stage_terms()) {
    Asked::Terms& sum = terms[told.stage()];
    const auto size = static_cast<std::size_t>(told.sums_size());
    if (sum.sums.size() != size) sum = {.jobs_per_s = 0, .sums = std::vector<double>(size)};
    sum.jobs_per_s += new_jobs;
    const auto earlier =
        std::ranges::find(from.stage_terms(), told.stage(), &v1::StageTerms::stage);
    const bool same =
        earlier != from.stage_terms().end() && earlier->sums_size() == told.sums_size();
    for (std::size_t i = 0; i < size; ++i) {
      const int at = static_cast<int>(i);
      sum.sums[i] += std::max(0.0, told.sums(at) - (same ? earlier->sums(at) : 0));
    }
  }
}

// Sums of another formula, from before the workflow changed, give way.
void LoadWindow::AddCount(Asked& asked, const Count& count, double seconds) {
  asked.jobs_per_s += count.jobs / seconds;
  asked.rejected_per_s += count.rejected / seconds;
  asked.units_per_s += count.units / seconds;
  for (const auto& [stage, terms] : count.terms) {
    Asked::Terms& sum = asked.terms[stage];
    if (sum.sums.size() != terms.sums.size())
      sum = {.jobs_per_s = 0, .sums = std::vector<double>(terms.sums.size())};
    sum.jobs_per_s += terms.jobs_per_s / seconds;
    for (std::size_t i = 0; i < terms.sums.size(); ++i) sum.sums[i] += terms.sums[i] / seconds;
  }
}

std::optional<double> LoadWindow::Asked::SecondsOf(const std::string& stage,
                                                   std::span<const double> seconds_per_term) const {
  const auto told = terms.find(stage);
  if (told == terms.end() || !(told->second.jobs_per_s > 0)) return std::nullopt;
  const auto seconds = capacity::CostByTerms(seconds_per_term, told->second.sums);
  if (!seconds) return std::nullopt;
  return *seconds * std::max(1.0, jobs_per_s / told->second.jobs_per_s);
}

void LoadWindow::AddAsked(Node& node, const v1::NodeLoad& to, base::MonotonicTime now) const {
  std::map<std::string, const v1::Demand*> before;
  for (const v1::Demand& demand : node.last.demands()) before[demand.app_id()] = &demand;
  if (node.lately.empty() || node.lately.back().covered_s >= kLatelyStepS)
    node.lately.emplace_back();
  Lately& lately = node.lately.back();
  lately.covered_s += base::ToSeconds(now - node.newest);
  for (const v1::Demand& demand : to.demands()) {
    const auto earlier = before.find(demand.app_id());
    const v1::Demand& from =
        earlier == before.end() ? v1::Demand::default_instance() : *earlier->second;
    if (demand.admitted() == from.admitted() && demand.rejected() == from.rejected()) continue;
    for (Counts* counts : {&BucketAt(node.asked, now, BucketWidth(), window_), &lately.counts}) {
      if (counts->size() >= kMaxWorks && !counts->contains(demand.app_id())) continue;
      (*counts)[demand.app_id()].Add(from, demand);
    }
  }
  double later_s = -node.lately.front().covered_s;  // What the entries after the first one cover.
  for (const Lately& entry : node.lately) later_s += entry.covered_s;
  while (later_s >= kLatelyS) {
    node.lately.pop_front();
    later_s -= node.lately.front().covered_s;
  }
}

void LoadWindow::Forget(const std::string& node_id) { nodes_.erase(node_id); }

void LoadWindow::ForgetSilent(base::MonotonicTime now) {
  if (now - swept_ < window_ / 10) return;
  swept_ = now;
  std::erase_if(nodes_, [&](const auto& entry) { return now - entry.second.newest > window_; });
}

std::optional<double> LoadWindow::MeanUtilization(const std::string& node_id,
                                                  base::MonotonicTime now) const {
  const auto place = nodes_.find(node_id);
  if (place == nodes_.end() || place->second.usage.empty()) return std::nullopt;
  const std::deque<Usage>& usage = place->second.usage;
  if (now - usage.back().at > FreshFor()) return std::nullopt;
  Usage from = usage.front();
  if (usage.size() >= 2 && from.at < now - window_) {
    // The window begins between the two oldest entries. The sums at its begin are interpolated.
    const Usage& next = usage[1];
    const double part = std::min(
        1.0, base::ToSeconds(now - window_ - from.at) / base::ToSeconds(next.at - from.at));
    from.covered_s += part * (next.covered_s - from.covered_s);
    from.busy_s += part * (next.busy_s - from.busy_s);
  }
  const double covered = usage.back().covered_s - from.covered_s;
  if (covered < base::ToSeconds(window_) / 2 || covered <= 0) return std::nullopt;
  return std::clamp((usage.back().busy_s - from.busy_s) / covered, 0.0, 1.0);
}

std::map<std::pair<std::string, std::string>, LoadWindow::Work> LoadWindow::WorkOf(
    const std::string& pool, base::MonotonicTime now) const {
  std::map<Key, Work> sums;
  const auto place = work_.find(pool);
  if (place == work_.end()) return sums;
  for (const auto& [key, buckets] : place->second) {
    Work& sum = sums[key];
    for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
      const bool recent = bucket->begin >= now - window_;
      if (!recent && sum.jobs >= capacity::kMinSamples) break;
      AddTo(sum, bucket->sums);
      if (recent) sum.recent_compute_s += bucket->sums.compute_s;
    }
  }
  return sums;
}

std::optional<double> LoadWindow::LoadSeconds(const std::string& stage) const {
  const auto place = load_s_.find(stage);
  return place == load_s_.end() ? std::nullopt : std::optional(place->second);
}

std::map<std::string, LoadWindow::Asked> LoadWindow::AskedOf(
    const std::vector<std::string>& proxies, base::MonotonicTime now) const {
  std::map<std::string, Asked> asked;
  for (const std::string& proxy : proxies) {
    const auto place = nodes_.find(proxy);
    if (place == nodes_.end()) continue;
    const double seconds =
        std::max(1.0, base::ToSeconds(std::min(window_, now - place->second.first)));
    for (const auto& bucket : place->second.asked) {
      if (bucket.begin < now - window_) continue;
      for (const auto& [app, count] : bucket.sums) AddCount(asked[app], count, seconds);
    }
  }
  return asked;
}

std::map<std::string, LoadWindow::Asked> LoadWindow::AskedLately(const std::string& proxy,
                                                                 base::MonotonicTime now) const {
  std::map<std::string, Asked> asked;
  const auto place = nodes_.find(proxy);
  if (place == nodes_.end() || now - place->second.newest > FreshFor()) return asked;
  double covered_s = 0;
  for (const Lately& entry : place->second.lately) covered_s += entry.covered_s;
  const double seconds = std::max(covered_s, kLatelyStepS);
  for (const Lately& entry : place->second.lately) {
    for (const auto& [app, count] : entry.counts) AddCount(asked[app], count, seconds);
  }
  return asked;
}

const v1::NodeLoad* LoadWindow::Last(const std::string& node_id) const {
  const auto place = nodes_.find(node_id);
  return place == nodes_.end() ? nullptr : &place->second.last;
}

}  // namespace onepiece::nodemanager
