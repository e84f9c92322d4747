#include "nodemanager/plans/proxy_loads.h"

#include <algorithm>
#include <span>
#include <vector>

#include "cluster/base/seconds.h"
#include "cluster/capacity/shares.h"
#include "nodemanager/plans/measured.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {

ProxyLoads::ProxyLoads(const StateMachine& state, const Telemetry& telemetry,
                       const v1::Capacity& capacity)
    : state_(state), telemetry_(telemetry), workflow_set_(capacity.workflow_set()) {
  for (const v1::PoolCapacity& pool : capacity.pools()) workers_[pool.pool()] = pool.workers();
  for (const v1::StageCost& cost : capacity.costs()) {
    MeanJob& mean = mean_jobs_[cost.app_id()];
    if (cost.seconds_per_unit() * cost.units_per_job() > 0) mean.stages.push_back(&cost);
    mean.units.AddStage(cost.samples(), cost.units_per_job() * static_cast<double>(cost.samples()));
  }
  ReadDebts();
}

// Reads what was reported, and takes away what the pools have done since. As in the proxies' model,
// a pool works on what each proxy has promised in proportion.
void ProxyLoads::ReadDebts() {
  ByPool sums;
  for (const auto& [id, record] : state_.nodes()) {
    const v1::Node& node = record.node();
    const v1::NodeLoad* load = telemetry_.window->Last(id);
    if (node.role() != v1::PROXY || node.workflow_set() != workflow_set_ || !IsAlive(node) ||
        load == nullptr)
      continue;
    for (const v1::PoolDebt& debt : load->debts()) {
      if (!workers_.contains(debt.pool())) continue;
      debts_[id][debt.pool()] = debt.seconds();
      sums[debt.pool()] += debt.seconds();
    }
  }
  for (auto& [id, debts] : debts_) {
    const double age_s = base::ToSeconds(telemetry_.window->Age(id, telemetry_.now));
    for (auto& [pool, seconds] : debts) {
      const double done = std::min(sums[pool], age_s * workers_[pool]);
      if (sums[pool] > 0) seconds *= 1 - done / sums[pool];
    }
  }
}

ProxyLoads::Asked ProxyLoads::AskedOf(const std::string& proxy) const {
  Asked sum;
  for (const auto& [app, asked] : telemetry_.window->AskedLately(proxy, telemetry_.now)) {
    const auto mean = mean_jobs_.find(app);
    if (mean == mean_jobs_.end() || mean->second.stages.empty()) {
      sum.all_s += asked.jobs_per_s;
      sum.is_known = false;
      continue;
    }
    const double jobs = asked.JobsOf(mean->second.units.value());
    for (const v1::StageCost* cost : mean->second.stages) {
      const std::span terms(cost->seconds_per_term().data(),
                            static_cast<std::size_t>(cost->seconds_per_term_size()));
      const double seconds = asked.SecondsOf(cost->stage(), terms)
                                 .value_or(jobs * cost->seconds_per_unit() * cost->units_per_job());
      sum.seconds[cost->pool()] += seconds;
      sum.all_s += seconds;
    }
  }
  // What a proxy owes is work too: without a share it would wait for ever until it may take a job.
  if (const auto debts = debts_.find(proxy); debts != debts_.end()) {
    for (const auto& [pool, seconds] : debts->second) {
      sum.seconds[pool] += seconds;
      sum.all_s += seconds;
    }
  }
  return sum;
}

double ProxyLoads::ShareOf(const std::string& proxy) const {
  std::vector<std::string> proxies = ReadyProxies(state_, workflow_set_);
  if (std::ranges::find(proxies, proxy) == proxies.end()) proxies.push_back(proxy);
  std::vector<double> wanted;
  ByPool loads;
  bool known = true;
  std::size_t own = 0;
  for (const std::string& each : proxies) {
    if (each == proxy) own = wanted.size();
    const Asked asked = AskedOf(each);
    wanted.push_back(asked.all_s);
    known = known && asked.is_known;
    for (const auto& [pool, seconds] : asked.seconds) loads[pool] += seconds;
  }
  // While costs are unknown nobody knows what is free, so all of the capacity goes where it is
  // asked for.
  double load = known ? 0 : 1;
  for (const auto& [pool, seconds] : loads) {
    const auto workers = workers_.find(pool);
    if (workers == workers_.end() || seconds <= 0) continue;
    load = std::max(load, workers->second > 0 ? seconds / workers->second : 1);
  }
  return capacity::Shares(wanted, load)[own];
}

double ProxyLoads::OthersDebt(const std::string& proxy, const std::string& pool) const {
  double sum = 0;
  for (const auto& [other, debts] : debts_) {
    if (other == proxy) continue;
    if (const auto debt = debts.find(pool); debt != debts.end()) sum += debt->second;
  }
  return sum;
}

}  // namespace onepiece::nodemanager
