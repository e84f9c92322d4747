#include "nodemanager/simulator/recorded.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/history/recording.h"
#include "cluster/workflow/pool.h"
#include "cluster/workflow/work_units.h"

namespace onepiece::simulator {
namespace {

/// Jobs are listed for long after they have ended, so rare looks find them all.
constexpr std::int64_t kLookMs = 10'000;
/// A longer recording is read at this many instants at most.
constexpr std::int64_t kMaxLooks = 20'000;

using Key = std::pair<std::string, std::string>;  // Application and stage.

double Ms(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) * 1e3 + time.nanos() * 1e-6;
}
double Seconds(const google::protobuf::Duration& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

struct Sums {
  double jobs = 0, units = 0, compute_s = 0, squares_s2 = 0, transfer_s = 0;
  void Add(const v1::StageLoad& load, double sign) {
    jobs += sign * static_cast<double>(load.jobs());
    units += sign * load.units();
    compute_s += sign * load.compute_s();
    squares_s2 += sign * load.compute_squares_s2();
    transfer_s += sign * load.transfer_s();
  }
};

// What one process counted, at its first and its last look.
struct Counted {
  v1::NodeLoad first, last;
};

// All that is collected while the recording is looked through.
class Reader {
 public:
  absl::Status Look(history::Recording& recording, const history::Interval& interval) {
    const std::int64_t step =
        std::max(kLookMs, (interval.to_ms - interval.from_ms) / kMaxLooks + 1);
    for (std::int64_t at = interval.from_ms; at < interval.to_ms + step; at += step) {
      const auto snapshot = recording.At(std::min(at, interval.to_ms));
      // In a gap nothing is known.
      if (snapshot.ok()) {
        Take(**snapshot);
      } else if (snapshot.status().code() != absl::StatusCode::kOutOfRange) {
        return snapshot.status();
      }
    }
    return absl::OkStatus();
  }

  std::map<std::string, std::shared_ptr<const v1::Job>> jobs;  // By uid, as it was seen last.
  std::shared_ptr<const v1::Cluster> first, last;
  std::shared_ptr<const v1::Elasticity> elasticity;
  std::map<std::pair<std::string, std::uint64_t>, Counted> counted;  // By node and incarnation.
  std::set<std::pair<std::string, std::uint64_t>> instances;
  bool truncated = false;

 private:
  void Take(const session::Snapshot& snapshot) {
    if (snapshot.jobs.value) {
      truncated = truncated || snapshot.jobs.value->truncated;
      for (const session::JobEntry& entry : snapshot.jobs.value->jobs)
        jobs[entry.job->uid()] = entry.job;
    }
    if (snapshot.elasticity.value) elasticity = snapshot.elasticity.value;
    if (!snapshot.cluster.value || snapshot.cluster.value->workflows().empty()) return;
    last = snapshot.cluster.value;
    if (!first) first = last;
    for (const v1::Node& node : last->nodes()) {
      if (node.role() != v1::INSTANCE) continue;
      instances.emplace(node.node_id(), node.incarnation());
      if (!node.has_load()) continue;
      const auto [known, is_new] = counted.try_emplace({node.node_id(), node.incarnation()});
      if (is_new) known->second.first = node.load();
      known->second.last = node.load();
    }
  }
};

std::string PoolOfNode(const v1::Node& node) {
  return node.assignment().has_stage() ? workflow::PoolIdOf(node.assignment().stage())
                                       : node.placement().pool();
}

// Makes the case from what was read.
class Maker {
 public:
  Maker(const Reader& reader, const history::Interval& interval)
      : reader_(reader), interval_(interval) {}

  absl::StatusOr<RecordedCase> Make() {
    CountWork();
    for (const v1::Workflow& flow : reader_.last->workflows()) AddApp(flow);
    if (made_.profile.apps().empty()) return Nothing("no application has both jobs and costs");
    AddPools();
    AddArrivals();
    if (made_.arrivals.empty()) return Nothing("no job was submitted while it was recorded");
    AddSettings();
    return std::move(made_);
  }

  static absl::Status Nothing(const std::string& what) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NOTHING_RECORDED",
                           "the recording has nothing to simulate: " + what);
  }

 private:
  void CountWork() {
    for (const auto& [process, counted] : reader_.counted) {
      for (const v1::StageLoad& load : counted.last.stages()) {
        sums_[{load.app_id(), load.stage()}].Add(load, 1);
        double& load_s = load_s_[load.stage()];
        load_s = std::max(load_s, load.load_s());
      }
      for (const v1::StageLoad& load : counted.first.stages())
        sums_[{load.app_id(), load.stage()}].Add(load, -1);
    }
    // The timings of jobs tell less: nothing of units.
    for (const auto& [uid, job] : reader_.jobs) {
      for (const v1::StageTiming& timing : job->timings()) {
        Sums& sums = timings_[{job->app_id(), timing.stage()}];
        const double seconds = Seconds(timing.compute());
        sums.jobs += 1;
        sums.compute_s += seconds;
        sums.squares_s2 += seconds * seconds;
        sums.transfer_s += Seconds(timing.transfer());
      }
    }
  }

  // What was counted of a stage, or null.
  [[nodiscard]] const Sums* SumsOf(const Key& key) {
    const auto counted = sums_.find(key), timed = timings_.find(key);
    if (counted != sums_.end() && counted->second.jobs >= 1 && counted->second.compute_s > 0)
      return &counted->second;
    if (timed == timings_.end() || !(timed->second.compute_s > 0)) return nullptr;
    by_timings_ = true;
    return &timed->second;
  }

  void AddApp(const v1::Workflow& flow) {
    v1::SimulatedApp app;
    app.set_app_id(flow.app_id());
    const v1::StageSpec* heaviest = nullptr;
    double most_s = 0;
    for (const v1::StageSpec& spec : flow.stages()) {
      const Sums* sums = SumsOf({flow.app_id(), spec.stage()});
      if (sums == nullptr) {
        made_.missing.push_back(absl::StrCat("application ", flow.app_id(), ": nobody measured ",
                                             spec.stage(), ", so it is left out"));
        return;
      }
      const double mean_s = sums->compute_s / sums->jobs;
      if (mean_s > most_s) {
        most_s = mean_s;
        heaviest = &spec;
      }
      v1::SimulatedStage& stage = *app.add_stages();
      stage.set_stage(spec.stage());
      stage.set_pool(workflow::PoolIdOf(spec));
      stage.set_seconds_per_unit(mean_s);
      stage.set_transfer_s(std::max(0.0, sums->transfer_s / sums->jobs));
      *stage.mutable_after() = spec.after();
    }
    SetUnits(flow, *heaviest);
    // What differing units explain is no spread of its own.
    for (v1::SimulatedStage& stage : *app.mutable_stages()) {
      const Sums& sums = *SumsOf({flow.app_id(), stage.stage()});
      const double mean = sums.compute_s / sums.jobs;
      const double square = sums.squares_s2 / sums.jobs / (mean * mean) - 1;
      stage.set_variation(
          std::min(10.0, std::sqrt(std::max(0.0, square - unit_spread_[flow.app_id()]))));
    }
    apps_[flow.app_id()] = made_.profile.apps_size();
    *made_.profile.add_apps() = std::move(app);
  }

  // Each job's units, as a multiple of the application's mean job.
  void SetUnits(const v1::Workflow& flow, const v1::StageSpec& heaviest) {
    double sum = 0, squares = 0, count = 0;
    for (const auto& [uid, job] : reader_.jobs) {
      if (job->app_id() != flow.app_id()) continue;
      const double units = workflow::WorkUnits(flow, heaviest, job->parameters());
      units_[uid] = units;
      sum += units;
      squares += units * units;
      count += 1;
    }
    if (count == 0) return;
    const double mean = sum / count;
    for (const auto& [uid, job] : reader_.jobs) {
      if (job->app_id() == flow.app_id()) units_[uid] /= mean;
    }
    unit_spread_[flow.app_id()] = std::max(0.0, squares / count / (mean * mean) - 1);
  }

  void AddPools() {
    std::map<std::string, int> placed, workers;
    for (const v1::Node& node : reader_.first->nodes()) {
      if (node.role() != v1::INSTANCE || node.state() == v1::Node::DEAD) continue;
      ++devices_;
      const std::string pool = PoolOfNode(node);
      ++placed[pool];
      workers[pool] = std::max(workers[pool], node.load().workers());
    }
    std::set<std::string> known;
    std::string placement;
    for (const v1::SimulatedApp& app : made_.profile.apps()) {
      for (const v1::SimulatedStage& stage : app.stages()) {
        if (!known.insert(stage.pool()).second) continue;
        v1::SimulatedPool& pool = *made_.profile.add_pools();
        pool.set_pool(stage.pool());
        pool.set_workers(workers[stage.pool()]);
        pool.set_load_s(load_s_[stage.stage()]);
        SetLimits(pool);
        if (placed[stage.pool()] == 0) {
          made_.missing.push_back(absl::StrCat("pool ", stage.pool(),
                                               " had no instance at the first tick: it has one"));
          ++devices_;
        }
        absl::StrAppend(&placement, placement.empty() ? "" : ",", stage.pool(), "=",
                        std::max(1, placed[stage.pool()]));
      }
    }
    made_.profile.mutable_settings()->set_placement(placement);
  }

  void SetLimits(v1::SimulatedPool& pool) const {
    if (!reader_.elasticity) return;
    for (const v1::PoolStatus& status : reader_.elasticity->pools()) {
      if (status.pool() != pool.pool()) continue;
      pool.set_min_instances(std::max(pool.min_instances(), status.min_instances()));
      pool.set_max_instances(status.max_instances());
    }
  }

  void AddArrivals() {
    double latency_s = 0;
    std::uint64_t before = 0;
    for (const auto& [uid, job] : reader_.jobs) {
      const auto app = apps_.find(job->app_id());
      const double at_s = (Ms(job->create_time()) - static_cast<double>(interval_.from_ms)) / 1e3;
      if (at_s < 0) ++before;
      if (app == apps_.end() || at_s < 0) continue;
      made_.arrivals.push_back({.time_s = at_s, .app = app->second, .units = units_[uid]});
      if (job->state() != v1::Job::SUCCEEDED) continue;
      ++made_.done;
      latency_s += (Ms(job->end_time()) - Ms(job->create_time())) / 1e3;
    }
    if (made_.done > 0) made_.mean_latency_s = latency_s / static_cast<double>(made_.done);
    std::ranges::stable_sort(made_.arrivals, {}, &Arrival::time_s);
    if (before > 0)
      made_.missing.push_back(absl::StrCat(
          before, " jobs were submitted before the recording began: the cluster begins empty"));
  }

  void AddSettings() {
    v1::SimulationConfig& settings = *made_.profile.mutable_settings();
    settings.set_duration_s(
        std::max(1.0, static_cast<double>(interval_.to_ms - interval_.from_ms) / 1e3));
    settings.set_devices(devices_);
    std::map<std::string, int> proxies;
    for (const v1::Node& node : reader_.first->nodes()) {
      if (node.role() == v1::PROXY && node.state() == v1::Node::READY)
        ++proxies[node.workflow_set()];
    }
    int most = 1;
    for (const auto& [set, count] : proxies) most = std::max(most, count);
    settings.set_proxies(most);
    if (reader_.elasticity && reader_.elasticity->window_s() > 0)
      settings.mutable_elasticity()->set_window_s(reader_.elasticity->window_s());
    Describe(proxies.size());
  }

  void Describe(std::size_t sets) {
    made_.profile.set_name("recording");
    std::size_t stages = 0;
    for (const v1::SimulatedApp& app : made_.profile.apps())
      stages += static_cast<std::size_t>(app.stages_size());
    made_.taken.push_back(absl::StrCat(made_.arrivals.size(), " jobs of ",
                                       made_.profile.apps_size(),
                                       " applications, with the time, "
                                       "application and units of each"));
    made_.taken.push_back(absl::StrCat("the costs of ", stages, " stages: mean, spread, transfer",
                                       by_timings_ ? " (some by the timings of jobs)" : ""));
    made_.taken.push_back(
        absl::StrCat("the placement at the beginning: ", made_.profile.settings().placement(),
                     " of ", devices_, " instances; limits, workers, load times, ",
                     made_.profile.settings().proxies(), " proxies, the window"));
    made_.missing.push_back("elasticity settings other than the window: --set elasticity.…");
    made_.missing.push_back("deadlines, priorities, tenants, cancellations, sizes of results");
    if (sets > 1) {
      made_.missing.push_back(absl::StrCat(
          sets, " workflow sets are simulated as one (--set workflow_sets=", sets, ")"));
    }
    std::set<std::string> names;
    for (const auto& [name, incarnation] : reader_.instances) names.insert(name);
    if (const std::size_t deaths = reader_.instances.size() - names.size(); deaths > 0) {
      made_.missing.push_back(
          absl::StrCat(deaths, " restarts of instances (--set mtbf_s=…), and plans of people"));
    } else {
      made_.missing.push_back("plans of people");
    }
    if (reader_.truncated)
      made_.missing.push_back("the oldest jobs, because the recorder did not list all of them");
  }

  const Reader& reader_;
  const history::Interval interval_;
  RecordedCase made_;
  std::map<Key, Sums> sums_, timings_;
  std::map<std::string, double> load_s_, units_, unit_spread_;  // By stage; uid; application.
  std::map<std::string, int> apps_;
  int devices_ = 0;
  bool by_timings_ = false;
};

}  // namespace

absl::StatusOr<RecordedCase> ReadRecording(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto recording, history::Recording::Open(path));
  ONEPIECE_ASSIGN_OR_RETURN(const history::RecordingInfo info, recording->Info());
  Reader reader;
  ONEPIECE_RETURN_IF_ERROR(reader.Look(*recording, info.interval));
  if (!reader.last) return Maker::Nothing("it shows no workflow");
  ONEPIECE_ASSIGN_OR_RETURN(RecordedCase made, Maker(reader, info.interval).Make());
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<history::Gap> gaps, recording->Gaps(info.interval));
  double gap_s = 0;
  for (const history::Gap& gap : gaps)
    gap_s += static_cast<double>(gap.interval.to_ms - gap.interval.from_ms) / 1e3;
  if (gap_s > 0) {
    made.missing.push_back(
        absl::StrFormat("%d gaps of %.0f s together, in which jobs may be missing",
                        static_cast<int>(gaps.size()), gap_s));
  }
  made.profile.set_source(path);
  return made;
}

}  // namespace onepiece::simulator
