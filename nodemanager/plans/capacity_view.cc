#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cluster/base/seconds.h"
#include "cluster/workflow/pool.h"
#include "nodemanager/plans/measured.h"
#include "nodemanager/plans/proxy_loads.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

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

void AddCosts(const StateMachine& state, const Telemetry& telemetry,
              google::protobuf::RepeatedPtrField<v1::StageCost>& costs) {
  // Asked for once, because a pool may serve a thousand applications.
  std::map<std::string, decltype(telemetry.window->WorkOf("", {}))> works;
  for (const auto& [app_id, record] : state.workflows()) {
    for (const v1::StageSpec& spec : record.workflow().stages()) {
      v1::StageCost& cost = *costs.Add();
      cost.set_app_id(app_id);
      cost.set_stage(spec.stage());
      cost.set_pool(workflow::PoolIdOf(spec));
      const auto [measured, is_new] = works.try_emplace(cost.pool());
      if (is_new) measured->second = telemetry.window->WorkOf(cost.pool(), telemetry.now);
      const auto work = measured->second.find({app_id, spec.stage()});
      if (work == measured->second.end() || work->second.jobs == 0 || !(work->second.units > 0))
        continue;
      const auto jobs = static_cast<double>(work->second.jobs);
      cost.set_seconds_per_unit(work->second.compute_s / work->second.units);
      cost.set_units_per_job(work->second.units / jobs);
      cost.set_samples(work->second.jobs);
      cost.set_transfer_s(work->second.transfer_s / jobs);
      const auto fit = FitOf(spec, work->second);
      if (!fit) continue;
      cost.mutable_seconds_per_term()->Assign(fit->seconds_per_term.begin(),
                                              fit->seconds_per_term.end());
      cost.set_relative_error(fit->relative_error);
    }
  }
}

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
  AddCosts(state, telemetry, *capacity.mutable_costs());
  const ProxyLoads proxies(state, telemetry, capacity);
  capacity.set_share(proxies.ShareOf(proxy));
  for (v1::PoolCapacity& pool : *capacity.mutable_pools())
    pool.set_others_debt_s(proxies.OthersDebt(proxy, pool.pool()));
  return capacity;
}

}  // namespace onepiece::nodemanager
