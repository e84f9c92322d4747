#include <algorithm>

#include "nodemanager/plans/measured.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// The pool's utilisation by application, in proportion to the time computed for each.
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

}  // namespace

v1::Elasticity MakeElasticity(const StateMachine& state, const Telemetry& telemetry,
                              const v1::ElasticityConfig& config) {
  v1::Elasticity elasticity;
  elasticity.set_plan_revision(state.plan_revision());
  elasticity.set_policy(config.policy());
  elasticity.set_window_s(config.window_s());
  const std::vector<InstanceView> instances = PlacedInstances(state, telemetry);
  for (const std::string& set : WorkflowSets(state)) {
    for (const Pool& pool : PoolsOf(state, set))
      AddPool(telemetry, set, pool, instances, elasticity);
  }
  for (const v1::Plan& plan : state.plans()) {
    if (!HasEnded(plan)) *elasticity.add_plans() = plan;
  }
  return elasticity;
}

}  // namespace onepiece::nodemanager
