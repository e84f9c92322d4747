#include "nodemanager/simulator/control.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"

namespace onepiece::simulator {
namespace {

constexpr const char* kSet = "default";
constexpr const char* kProxyName = "proxy";

base::Uid UidOf(int job) {
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < 4; ++i)
    bytes[15 - i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(job) >> (8 * i));
  bytes[0] = 1;  // Not nil.
  return base::Uid(bytes);
}

// How long a client waits that is not told when to ask again.
constexpr Time kDefaultRetry = 1'000'000'000;

Time RetryAfter(const absl::Status& status) {
  for (const auto& [key, value] : base::GetReason(status).metadata) {
    std::int64_t ms = 0;
    if (key == "retry_after_ms" && absl::SimpleAtoi(value, &ms) && ms > 0) return ms * 1'000'000;
  }
  return kDefaultRetry;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Control>> Control::Create(const System& system,
                                                         const v1::SimulationConfig& settings,
                                                         const std::string& policy,
                                                         const Fleet& fleet) {
  v1::ElasticityConfig wanted = settings.elasticity();
  wanted.set_policy(policy);
  ONEPIECE_ASSIGN_OR_RETURN(const v1::ElasticityConfig elasticity,
                            nodemanager::CompleteElasticity(wanted));
  ONEPIECE_ASSIGN_OR_RETURN(auto made, nodemanager::MakePolicy(elasticity));
  return std::unique_ptr<Control>(
      new Control(system, fleet, elasticity, std::move(made), settings.admission()));
}

Control::Control(const System& system, const Fleet& fleet, v1::ElasticityConfig elasticity,
                 std::unique_ptr<nodemanager::Policy> policy, bool admission)
    : system_(system),
      fleet_(fleet),
      elasticity_(std::move(elasticity)),
      policy_(std::move(policy)),
      start_(clock_.Now()),
      window_(base::FromSeconds(elasticity_.window_s())),
      admission_(admission),
      monitor_({}, clock_),
      // 30 reports a window are fresh enough for LoadWindow. More would only slow the simulation
      // down.
      report_interval_(FromSeconds(std::max(0.5, elasticity_.window_s() / 30))),
      decide_interval_(FromSeconds(elasticity_.interval_s())),
      moves_(policy_->name() != "static"),
      busy_(static_cast<std::size_t>(system.devices)),
      asked_(system.apps.size()),
      changes_(system.pools.size()),
      origins_(static_cast<std::size_t>(system.devices)) {
  for (int i = 0; i < system.devices; ++i) names_.push_back(absl::StrFormat("gpu-%04d", i));
}

void Control::Advance(Time now) {
  clock_.Advance(base::Duration(now - now_));
  now_ = now;
}

std::optional<Time> Control::Admit(const Asking& asking) {
  if (!admission_) {
    ++asked_[asking.app];
    return std::nullopt;
  }
  const App& app = system_.apps[asking.app];
  admission::AdmissionRequest request{
      .uid = UidOf(asking.job),
      .app_id = app.id,
      .deadline = clock_.WallNow() + base::Duration(asking.deadline - now_)};
  for (const Stage& stage : app.stages) {
    request.stages.push_back({.stage = stage.name, .units = asking.units * stage.units});
    for (const int before : stage.after)
      request.stages.back().after.push_back(app.stages[before].name);
  }
  const absl::Status admitted = monitor_.Admit(request);
  if (!admitted.ok()) return RetryAfter(admitted);
  monitor_.Keep(request.uid);
  return std::nullopt;
}

void Control::End(int job) {
  if (admission_) monitor_.End(UidOf(job));
}

void Control::Report(Time now) {
  for (int i = 0; i < system_.devices; ++i) ReportInstance(i, now);
  ReportProxy();
  if (admission_) monitor_.Update(MakeCapacity());
}

void Control::ReportInstance(int index, Time now) {
  const Device& device = fleet_.devices()[index];
  const Time busy = fleet_.BusyAt(index, now);
  // The mark moves on before the return below. Otherwise the first report at the next pool would
  // count what the device did at the last one.
  const Time did = busy - std::exchange(busy_[index], busy);
  // Nobody asks how busy an idle device is.
  if (device.pool == kIdlePool) return window_.Forget(names_[index]);
  const bool serves = device.state == Device::State::kServing;
  v1::NodeLoad load;
  const int workers = system_.pools[device.pool].workers;
  load.set_workers(workers);
  load.set_utilization_source(v1::WORKERS);
  if (now > 0) {
    load.set_utilization(
        std::min(1.0, static_cast<double>(did) / static_cast<double>(report_interval_) / workers));
  }
  load.set_queued_jobs(device.queued);
  load.set_running_jobs(device.running);
  load.set_held_jobs(device.queued + device.running);
  load.set_sample_unix_ms(base::ToUnixMs(clock_.WallNow()));
  for (std::size_t a = 0; a < system_.apps.size(); ++a) {
    const App& app = system_.apps[a];
    for (std::size_t s = 0; s < app.stages.size(); ++s) {
      const Work& work = device.work[fleet_.Flat(static_cast<int>(a), static_cast<int>(s))];
      if (work.jobs == 0) continue;
      v1::StageLoad& stage = *load.add_stages();
      stage.set_app_id(app.id);
      stage.set_stage(app.stages[s].name);
      stage.set_jobs(work.jobs);
      stage.set_units(work.units);
      stage.set_compute_s(work.compute_s);
      stage.set_compute_squares_s2(work.squares_s2);
      stage.set_queued_s(work.queued_s);
      stage.set_transfer_s(work.transfer_s);
      stage.set_load_s(system_.pools[app.stages[s].pool].load_s);
    }
  }
  // An instance that loads or drains serves no pool, so its time is not part of a pool's
  // utilisation.
  window_.Add(names_[index], 1, serves ? system_.pools[device.pool].id : "", load, clock_.Now());
}

void Control::ReportProxy() {
  v1::NodeLoad load;
  load.set_sample_unix_ms(base::ToUnixMs(clock_.WallNow()));
  if (admission_) {
    for (const v1::Demand& demand : monitor_.demands()) *load.add_demands() = demand;
  } else {
    for (std::size_t a = 0; a < system_.apps.size(); ++a) {
      v1::Demand& demand = *load.add_demands();
      demand.set_app_id(system_.apps[a].id);
      demand.set_admitted(asked_[a]);
    }
  }
  window_.Add(kProxyName, 1, "", load, clock_.Now());
}

v1::Capacity Control::MakeCapacity() const {
  v1::Capacity capacity;
  capacity.set_as_of_unix_ms(base::ToUnixMs(clock_.WallNow()));
  capacity.set_workflow_set(kSet);
  capacity.set_share(1);
  for (std::size_t p = 0; p < system_.pools.size(); ++p) {
    const Pool& pool = system_.pools[p];
    const std::vector<int>& serving = fleet_.serving(static_cast<int>(p));
    v1::PoolCapacity& one = *capacity.add_pools();
    one.set_pool(pool.id);
    one.set_instances(static_cast<int>(serving.size()));
    one.set_workers(static_cast<int>(serving.size()) * pool.workers);
    double utilization = 0;
    std::int64_t queued = 0;
    for (const int device : serving) {
      utilization += window_.MeanUtilization(names_[device], clock_.Now()).value_or(0);
      queued += fleet_.devices()[device].queued;
    }
    if (!serving.empty()) one.set_utilization(utilization / static_cast<double>(serving.size()));
    one.set_queued_jobs(queued);
    AddCosts(static_cast<int>(p), capacity);
  }
  return capacity;
}

// Adds every stage of the pool, measured or not, as the leader does.
void Control::AddCosts(int pool, v1::Capacity& capacity) const {
  const auto measured = window_.WorkOf(system_.pools[pool].id, clock_.Now());
  for (const App& app : system_.apps) {
    for (const Stage& stage : app.stages) {
      if (stage.pool != pool) continue;
      v1::StageCost& cost = *capacity.add_costs();
      cost.set_app_id(app.id);
      cost.set_stage(stage.name);
      cost.set_pool(system_.pools[pool].id);
      const auto done = measured.find({app.id, stage.name});
      if (done == measured.end() || done->second.jobs == 0 || done->second.units <= 0) continue;
      const nodemanager::LoadWindow::Work& work = done->second;
      cost.set_seconds_per_unit(work.compute_s / work.units);
      cost.set_units_per_job(work.units / static_cast<double>(work.jobs));
      cost.set_samples(work.jobs);
      cost.set_transfer_s(work.transfer_s / static_cast<double>(work.jobs));
    }
  }
}

nodemanager::SetView Control::MakeSet() const {
  nodemanager::SetView set{.workflow_set = kSet};
  std::vector<std::map<std::pair<std::string, std::string>, nodemanager::LoadWindow::Work>> works;
  for (std::size_t p = 0; p < system_.pools.size(); ++p) {
    const Pool& pool = system_.pools[p];
    const std::size_t serving = fleet_.serving(static_cast<int>(p)).size();
    set.model.pools.push_back(
        {.id = pool.id, .workers = static_cast<double>(serving) * pool.workers});
    works.push_back(window_.WorkOf(pool.id, clock_.Now()));
  }
  const auto asked = window_.AskedOf({kProxyName}, clock_.Now());
  for (const App& app : system_.apps) {
    capacity::App& one = set.model.apps.emplace_back();
    one.id = app.id;
    nodemanager::UnitsPerJob units_per_job;
    for (const Stage& stage : app.stages) {
      capacity::StageDemand demand{.stage = stage.name, .pool = system_.pools[stage.pool].id};
      for (const int before : stage.after) demand.after.push_back(app.stages[before].name);
      const auto& work = works[stage.pool][{app.id, stage.name}];
      units_per_job.AddStage(work.jobs, work.units);
      if (work.jobs > 0) {
        const auto jobs = static_cast<double>(work.jobs);
        const double mean = work.compute_s / jobs;
        demand.seconds_per_job = mean;
        if (mean > 0)
          demand.variation = std::sqrt(std::max(0.0, work.squares_s2 / jobs - mean * mean)) / mean;
        demand.transfer_s = work.transfer_s / jobs;
        demand.samples = work.jobs;
      }
      one.stages.push_back(std::move(demand));
    }
    if (const auto it = asked.find(app.id); it != asked.end())
      one.arrivals_per_s = it->second.JobsOf(units_per_job.value());
  }
  return set;
}

nodemanager::PolicyView Control::MakeView() const {
  nodemanager::PolicyView view{.now = clock_.Now(), .moves_under_way = fleet_.moving()};
  for (int i = 0; i < system_.devices; ++i) {
    const Device& device = fleet_.devices()[i];
    if (device.state == Device::State::kMember) continue;
    const bool serves = device.state == Device::State::kServing;
    nodemanager::InstanceView one{.node_id = names_[i], .workflow_set = kSet};
    if (device.pool != kIdlePool) {
      one.pool = system_.pools[device.pool].id;
      // An instance that drains no longer counts for its pool, and one that loads counts already.
      one.workers =
          device.state == Device::State::kDraining ? 0 : system_.pools[device.pool].workers;
    }
    one.movable = serves || device.state == Device::State::kIdle;
    if (serves) one.utilization = window_.MeanUtilization(names_[i], clock_.Now());
    if (device.since > 0) one.since = start_ + base::Duration(device.since);
    view.instances.push_back(std::move(one));
  }
  for (std::size_t p = 0; p < system_.pools.size(); ++p) {
    const Pool& pool = system_.pools[p];
    view.pools.push_back({.workflow_set = kSet,
                          .id = pool.id,
                          .stage = pool.stage,
                          .min_instances = pool.min_instances,
                          .max_instances = pool.max_instances,
                          .resource = pool.devices,
                          .load_s = window_.LoadSeconds(pool.stage).value_or(0),
                          .changes = changes_[p]});
  }
  CountMoves(view);
  view.sets.push_back(MakeSet());
  view.past = past_;
  return view;
}

// Counts the moves that have not ended at the pool that loses the instance, or else at the one that
// gets it.
void Control::CountMoves(nodemanager::PolicyView& view) const {
  for (std::size_t i = 0; i < origins_.size(); ++i) {
    const Device& device = fleet_.devices()[i];
    const bool moves =
        device.state == Device::State::kDraining || device.state == Device::State::kLoading;
    if (!moves || !origins_[i].has_value()) continue;
    if (*origins_[i] != kIdlePool)
      ++view.pools[static_cast<std::size_t>(*origins_[i])].leaving;
    else
      ++view.pools[static_cast<std::size_t>(device.pool)].arriving;
  }
}

std::vector<Control::Wanted> Control::Decide(Time) {
  const nodemanager::PolicyDecision decision = policy_->Decide(MakeView());
  if (!decision.detail.empty()) detail_ = decision.detail;
  std::vector<Wanted> wanted;
  for (const nodemanager::WantedMove& move : decision.moves) {
    const auto device = std::ranges::find(names_, move.node_id);
    const auto pool = std::ranges::find(system_.pools, move.to_pool, &Pool::id);
    if (device == names_.end() || (pool == system_.pools.end() && !move.to_pool.empty())) continue;
    wanted.push_back({.device = static_cast<int>(device - names_.begin()),
                      .pool = move.to_pool.empty()
                                  ? kIdlePool
                                  : static_cast<int>(pool - system_.pools.begin())});
  }
  return wanted;
}

void Control::Moved(int device, int from, int to, Time now) {
  const base::MonotonicTime at = start_ + base::Duration(now);
  const auto id = [&](int pool) {
    return pool == kIdlePool ? std::string() : system_.pools[pool].id;
  };
  origins_[device] = from;
  for (const int pool : {from, to}) {
    if (pool == kIdlePool) continue;
    changes_[pool].push_back(at);
    std::erase_if(changes_[pool], [&](base::MonotonicTime change) {
      return at - change > base::FromSeconds(elasticity_.cooldown_s());
    });
  }
  past_.push_back({.at = at,
                   .node_id = names_[device],
                   .from_pool = id(from),
                   .to_pool = id(to),
                   .from_set = kSet,
                   .to_set = kSet});
  std::erase_if(past_, [&](const nodemanager::PastMove& move) {
    return at - move.at > nodemanager::kFlappingWindows * window_.window();
  });
}

}  // namespace onepiece::simulator
