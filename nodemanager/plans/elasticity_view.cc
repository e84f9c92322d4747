#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nodemanager/plans/measured.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// Splits the pool's utilisation among its applications, in proportion to the time computed for
// each.
void AddShares(const Telemetry& telemetry, v1::PoolStatus& pool) {
  if (!pool.has_utilization()) return;
  std::map<std::string, double> seconds;
  double all = 0;
  for (const auto& [key, work] : telemetry.window->WorkOf(pool.pool(), telemetry.now)) {
    seconds[key.first] += work.recent_compute_s;
    all += work.recent_compute_s;
  }
  for (const auto& [app, own] : seconds) {
    if (all <= 0) return;
    v1::AppShare& share = *pool.add_shares();
    share.set_app_id(app);
    share.set_utilization(pool.utilization() * own / all);
  }
}

void AddPool(const Telemetry& telemetry, const std::string& workflow_set, const Pool& pool,
             const std::vector<InstanceView>& instances, v1::Elasticity& elasticity) {
  v1::PoolStatus& added = *elasticity.add_pools();
  added.set_workflow_set(workflow_set);
  added.set_pool(pool.id);
  added.mutable_app_ids()->Add(pool.app_ids.begin(), pool.app_ids.end());
  added.set_instances(
      static_cast<int>(std::ranges::count_if(instances, [&](const InstanceView& instance) {
        return instance.workflow_set == workflow_set && instance.pool == pool.id;
      })));
  added.set_min_instances(pool.min_instances);
  added.set_max_instances(pool.max_instances);
  if (const auto mean = MeanUtilization(instances, workflow_set, pool.id))
    added.set_utilization(*mean);
  AddShares(telemetry, added);
}

// Says why nobody serves the pool, if no instance of the set can.
void AddMissingDevice(const std::string& workflow_set, const Pool& pool,
                      const std::vector<InstanceView>& instances, v1::Elasticity& elasticity) {
  const bool fits = std::ranges::any_of(instances, [&](const InstanceView& instance) {
    return instance.workflow_set == workflow_set &&
           std::ranges::find(instance.unfit_pools, pool.id) == instance.unfit_pools.end();
  });
  if (fits || NeededDevice(pool).empty()) return;
  absl::StrAppend(elasticity.mutable_policy_detail(),
                  elasticity.policy_detail().empty() ? "" : "; ", pool.id, ": no instance of ",
                  workflow_set, " has ", NeededDevice(pool));
}

// The rate that the application could have if it were alone, or nullopt when a stage is not
// measured.
std::optional<double> RateAlone(const capacity::Model& model, const capacity::App& app) {
  const auto is_measured = [](const capacity::StageDemand& demand) {
    return demand.samples >= capacity::kMinSamples;
  };
  if (!std::ranges::all_of(app.stages, is_measured)) return std::nullopt;
  return capacity::SustainableRate(model, app);
}

void AddApps(const StateMachine& state, const Telemetry& telemetry, const std::string& workflow_set,
             const std::vector<Pool>& pools, const std::vector<InstanceView>& instances,
             v1::Elasticity& elasticity) {
  capacity::Model model = MeasuredModel(state, telemetry, workflow_set, pools);
  SetWorkers(model, workflow_set, instances);
  const auto asked = telemetry.window->AskedOf(ReadyProxies(state, workflow_set), telemetry.now);
  for (const capacity::App& app : model.apps) {
    v1::AppStatus& added = *elasticity.add_apps();
    added.set_workflow_set(workflow_set);
    added.set_app_id(app.id);
    if (const auto rates = asked.find(app.id); rates != asked.end()) {
      added.set_asked_per_s(rates->second.jobs_per_s);
      added.set_rejected_per_s(rates->second.rejected_per_s);
    }
    if (const auto rate = RateAlone(model, app)) added.set_sustainable_per_s(*rate);
  }
}

}  // namespace

v1::Elasticity MakeElasticity(const StateMachine& state, const Telemetry& telemetry,
                              const v1::ElasticityConfig& config) {
  v1::Elasticity elasticity;
  elasticity.set_plan_revision(state.plan_revision());
  elasticity.set_policy(config.policy());
  elasticity.set_window_s(config.window_s());
  const std::vector<InstanceView> instances = PlacedInstances(state, telemetry);
  for (const std::string& set : WorkflowSets(state)) {
    const std::vector<Pool> pools = PoolsOf(state, set);
    for (const Pool& pool : pools) {
      AddPool(telemetry, set, pool, instances, elasticity);
      AddMissingDevice(set, pool, instances, elasticity);
    }
    AddApps(state, telemetry, set, pools, instances, elasticity);
  }
  AddCosts(state, telemetry, *elasticity.mutable_costs());
  for (const v1::Plan& plan : state.plans()) {
    if (!HasEnded(plan)) *elasticity.add_plans() = plan;
  }
  return elasticity;
}

}  // namespace onepiece::nodemanager
