#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cluster/workflow/pool.h"
#include "nodemanager/plans/measured.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// This part of a set's capacity is shared equally by its proxies, so that a proxy which nobody has
// asked for a window can begin.
constexpr double kEvenShare = 0.2;

// The instances that serve a set now, by pool.
std::map<std::string, v1::PoolCapacity> Serving(const StateMachine& state,
                                                const Telemetry& telemetry,
                                                const std::string& workflow_set) {
  struct Busy {
    double sum = 0, workers = 0;
  };
  std::map<std::string, v1::PoolCapacity> pools;
  std::map<std::string, Busy> busy;
  for (const auto& [id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    const v1::NodeLoad* load = telemetry.window->Last(id);
    if (node.role() != v1::INSTANCE || node.workflow_set() != workflow_set ||
        ActivityOf(record, load) != v1::SERVING)
      continue;
    const std::string id_of_pool = AssignedPool(node);
    const int workers = WorkersOf(telemetry, id);
    v1::PoolCapacity& pool = pools[id_of_pool];
    pool.set_instances(pool.instances() + 1);
    pool.set_workers(pool.workers() + workers);
    if (load != nullptr) {
      pool.set_queued_jobs(pool.queued_jobs() + load->queued_jobs() + load->ring_slots_used());
    }
    if (const auto mean = telemetry.window->MeanUtilization(id, telemetry.now)) {
      busy[id_of_pool].sum += *mean * workers;
      busy[id_of_pool].workers += workers;
    }
  }
  for (const auto& [pool, each] : busy) pools[pool].set_utilization(each.sum / each.workers);
  return pools;
}

void AddCosts(const StateMachine& state, const Telemetry& telemetry, v1::Capacity& capacity) {
  for (const auto& [app_id, record] : state.workflows()) {
    for (const v1::StageSpec& spec : record.workflow().stages()) {
      v1::StageCost& cost = *capacity.add_costs();
      cost.set_app_id(app_id);
      cost.set_stage(spec.stage());
      cost.set_pool(workflow::PoolIdOf(spec));
      const auto measured = telemetry.window->WorkOf(cost.pool(), telemetry.now);
      const auto work = measured.find({app_id, spec.stage()});
      if (work == measured.end() || work->second.jobs == 0 || !(work->second.units > 0)) continue;
      const auto jobs = static_cast<double>(work->second.jobs);
      cost.set_seconds_per_unit(work->second.compute_s / work->second.units);
      cost.set_units_per_job(work->second.units / jobs);
      cost.set_samples(work->second.jobs);
      cost.set_transfer_s(work->second.transfer_s / jobs);
    }
  }
}

struct MeanJob {
  double seconds = 0;  // 0: no stage of it is measured.
  UnitsPerJob units;
};

// The worker seconds that the jobs which a proxy is asked for need, per second. A job of unknown
// cost counts as one.
double DemandOf(const Telemetry& telemetry, const std::string& proxy,
                const std::map<std::string, MeanJob>& mean_jobs) {
  double demand = 0;
  for (const auto& [app, asked] : telemetry.window->AskedOf({proxy}, telemetry.now)) {
    const auto mean = mean_jobs.find(app);
    const bool known = mean != mean_jobs.end() && mean->second.seconds > 0;
    demand +=
        known ? asked.JobsOf(mean->second.units.value()) * mean->second.seconds : asked.jobs_per_s;
  }
  return demand;
}

double ShareOf(const StateMachine& state, const Telemetry& telemetry, const v1::Capacity& capacity,
               const std::string& proxy) {
  std::vector<std::string> proxies = ReadyProxies(state, capacity.workflow_set());
  // A proxy that is about to begin shares with those that work.
  if (std::ranges::find(proxies, proxy) == proxies.end()) proxies.push_back(proxy);
  std::map<std::string, MeanJob> mean_jobs;
  for (const v1::StageCost& cost : capacity.costs()) {
    MeanJob& mean = mean_jobs[cost.app_id()];
    mean.seconds += cost.seconds_per_unit() * cost.units_per_job();
    mean.units.AddStage(cost.samples(), cost.units_per_job() * static_cast<double>(cost.samples()));
  }
  double all = 0, own = 0;
  for (const std::string& each : proxies) {
    const double demand = DemandOf(telemetry, each, mean_jobs);
    all += demand;
    if (each == proxy) own = demand;
  }
  const double even = 1.0 / static_cast<double>(proxies.size());
  return all > 0 ? kEvenShare * even + (1 - kEvenShare) * own / all : even;
}

// The free share of the narrowest pool. For each pool the busier of two numbers counts: what is
// measured and what is offered.
double HeadroomOf(const StateMachine& state, const Telemetry& telemetry,
                  const std::string& workflow_set,
                  const std::map<std::string, v1::PoolCapacity>& serving) {
  const std::vector<Pool> pools = PoolsOf(state, workflow_set);
  capacity::Model model = MeasuredModel(state, telemetry, workflow_set, pools);
  double headroom = 1;
  for (capacity::Pool& pool : model.pools) {
    const auto serves = serving.find(pool.id);
    if (serves == serving.end()) return 0;  // Some application cannot be served.
    pool.workers = serves->second.workers();
    headroom = std::min(headroom, 1 - serves->second.utilization());
  }
  for (const capacity::Pool& pool : model.pools)
    headroom = std::min(headroom, 1 - capacity::Utilization(model, pool.id));
  return std::max(0.0, headroom);
}

}  // namespace

v1::Capacity MakeCapacity(const StateMachine& state, const Telemetry& telemetry,
                          const std::string& workflow_set, const std::string& proxy) {
  v1::Capacity capacity;
  capacity.set_as_of_unix_ms(base::ToUnixMs(telemetry.wall_now));
  capacity.set_workflow_set(workflow_set);
  for (const std::string& set : WorkflowSets(state)) {
    const auto serving = Serving(state, telemetry, set);
    v1::SetHeadroom& headroom = *capacity.add_sets();
    headroom.set_workflow_set(set);
    headroom.set_headroom(HeadroomOf(state, telemetry, set, serving));
    if (set != workflow_set) continue;
    for (const Pool& pool : PoolsOf(state, set)) {
      v1::PoolCapacity& added = *capacity.add_pools();
      if (const auto serves = serving.find(pool.id); serves != serving.end())
        added = serves->second;
      added.set_pool(pool.id);
    }
  }
  AddCosts(state, telemetry, capacity);
  capacity.set_share(ShareOf(state, telemetry, capacity, proxy));
  return capacity;
}

}  // namespace onepiece::nodemanager
