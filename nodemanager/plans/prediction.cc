#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/base/seconds.h"
#include "nodemanager/plans/measured.h"

namespace onepiece::nodemanager {
namespace {

// At most this many pools and this many applications, because the state keeps a plan with its
// prediction.
constexpr int kMaxPredictions = 32;

// One workflow set: `before` has its instances where they are, `after` where the plan puts them.
struct SetForecast {
  std::string workflow_set;
  std::vector<Pool> pools;
  capacity::Model before, after;
};

std::int64_t CountIn(const std::vector<InstanceView>& instances, const std::string& set,
                     const std::string& pool) {
  return std::ranges::count_if(instances, [&](const InstanceView& instance) {
    return instance.workflow_set == set && instance.pool == pool && instance.workers > 0;
  });
}

InstanceView* Find(std::vector<InstanceView>& instances, const std::string& node_id) {
  const auto found = std::ranges::find(instances, node_id, &InstanceView::node_id);
  return found == instances.end() ? nullptr : &*found;
}

void Apply(const StateMachine& state, const v1::Plan& plan, std::vector<InstanceView>& instances) {
  for (const v1::Move& move : plan.moves()) {
    InstanceView* instance = Find(instances, move.node_id());
    if (instance == nullptr) continue;
    std::tie(instance->workflow_set, instance->pool) =
        PlaceOf(state.nodes().at(move.node_id()), move.to());
  }
}

v1::Estimate ToProto(const capacity::Estimate& estimate) {
  v1::Estimate proto;
  proto.set_value(estimate.value);
  proto.set_low(estimate.low);
  proto.set_high(estimate.high);
  return proto;
}

// The wait with its band. The wait grows with the demand, so the ends of its band are the waits at
// the demands that give the ends of the utilisation's band.
v1::Estimate Wait(const capacity::Model& model, const std::string& pool) {
  const capacity::Estimate band = capacity::UtilizationBand(model, pool);
  const auto at = [&](double utilization) {
    capacity::Model scaled = model;
    if (band.value > 0 && std::isfinite(band.value)) {
      for (capacity::App& app : scaled.apps) app.arrivals_per_s *= utilization / band.value;
    }
    const double wait = capacity::MeanWait(scaled, pool);
    return std::isfinite(wait) ? wait : -1;
  };
  return ToProto({at(band.value), at(band.low), at(band.high)});
}

// The application's rate times the factor by which the present mix can grow until the narrowest of
// its pools is full.
v1::Estimate Throughput(const capacity::Model& model, const capacity::App& app) {
  const auto fits = [](double utilization) { return utilization > 0 ? 1 / utilization : 0; };
  capacity::Estimate scale{.value = -1};
  for (const capacity::StageDemand& demand : app.stages) {
    const capacity::Estimate busy = capacity::UtilizationBand(model, demand.pool);
    if (!(busy.value > 0)) continue;
    const capacity::Estimate here{fits(busy.value), fits(busy.high), fits(busy.low)};
    if (scale.value < 0) {
      scale = here;
      continue;
    }
    scale.value = std::min(scale.value, here.value);
    scale.low = std::min(scale.low, here.low);
    scale.high = std::min(scale.high, here.high);
  }
  if (scale.value < 0) return {};
  return ToProto({app.arrivals_per_s * scale.value, app.arrivals_per_s * scale.low,
                  app.arrivals_per_s * scale.high});
}

std::string MissingData(const std::vector<SetForecast>& sets) {
  std::set<std::string> without;
  bool asked = false;
  for (const SetForecast& set : sets) {
    for (const std::string& pool : capacity::PoolsWithoutData(set.before)) without.insert(pool);
    for (const capacity::App& app : set.before.apps) asked = asked || app.arrivals_per_s > 0;
  }
  if (!asked) return "nobody has asked for a job within the window";
  if (without.empty()) return "";
  return absl::StrCat("fewer than ", capacity::kMinSamples,
                      " jobs measured, or not of all applications: ", absl::StrJoin(without, ", "));
}

std::string Basis(const Telemetry& telemetry, const std::vector<SetForecast>& sets) {
  // Costs are measured over all sets together, so the first set's model has all jobs.
  std::uint64_t jobs = 0;
  for (const capacity::App& app : sets.front().before.apps) {
    std::uint64_t most = 0;
    for (const capacity::StageDemand& demand : app.stages) most = std::max(most, demand.samples);
    jobs += most;
  }
  const double seconds = base::ToSeconds(telemetry.window->window());
  return seconds < 120 ? absl::StrFormat("%.0f s window, %d jobs", seconds, jobs)
                       : absl::StrFormat("%.0f min window, %d jobs", seconds / 60, jobs);
}

// The worker seconds that moved instances do not compute while they finish their work and load the
// new model.
double TransientLoss(const Telemetry& telemetry, const std::vector<SetForecast>& sets,
                     const std::vector<InstanceView>& before,
                     const std::vector<InstanceView>& after) {
  double loss = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const InstanceView& from = before[i];
    const InstanceView& to = after[i];
    if (from.pool.empty() || (from.pool == to.pool && from.workflow_set == to.workflow_set))
      continue;
    double seconds = 0;
    for (const SetForecast& set : sets) {
      if (set.workflow_set == from.workflow_set) {
        for (const capacity::App& app : set.before.apps) {
          for (const capacity::StageDemand& demand : app.stages) {
            if (demand.pool == from.pool) seconds = std::max(seconds, demand.seconds_per_job);
          }
        }
      }
    }
    for (const Pool& pool : sets.front().pools) {
      if (pool.id == to.pool)
        seconds += telemetry.window->LoadSeconds(pool.spec.stage()).value_or(0);
    }
    loss += from.workers * seconds;
  }
  return loss;
}

std::string Bottleneck(const std::vector<SetForecast>& sets, bool after) {
  capacity::Narrowest narrowest;
  for (const SetForecast& set : sets) {
    const capacity::Narrowest here = capacity::FindNarrowest(after ? set.after : set.before);
    if (here.pool.empty()) continue;
    if (narrowest.pool.empty() || here.scale < narrowest.scale) narrowest = here;
  }
  return narrowest.pool;
}

void PredictPools(const SetForecast& set, const std::vector<InstanceView>& before,
                  const std::vector<InstanceView>& after, v1::Prediction& prediction) {
  for (const Pool& pool : set.pools) {
    if (prediction.pools_size() >= kMaxPredictions) return;
    const std::int64_t was = CountIn(before, set.workflow_set, pool.id);
    const std::int64_t will_be = CountIn(after, set.workflow_set, pool.id);
    if (was == will_be && pool.id != prediction.bottleneck_before() &&
        pool.id != prediction.bottleneck_after())
      continue;
    v1::PoolPrediction& added = *prediction.add_pools();
    added.set_workflow_set(set.workflow_set);
    added.set_pool(pool.id);
    added.set_instances_before(static_cast<int>(was));
    added.set_instances_after(static_cast<int>(will_be));
    *added.mutable_utilization_before() = ToProto(capacity::UtilizationBand(set.before, pool.id));
    *added.mutable_utilization_after() = ToProto(capacity::UtilizationBand(set.after, pool.id));
    *added.mutable_wait_before() = Wait(set.before, pool.id);
    *added.mutable_wait_after() = Wait(set.after, pool.id);
  }
}

void PredictApps(const SetForecast& set, v1::Prediction& prediction) {
  for (std::size_t i = 0; i < set.before.apps.size(); ++i) {
    if (prediction.apps_size() >= kMaxPredictions) return;
    if (set.before.apps[i].arrivals_per_s <= 0) continue;
    v1::AppPrediction& added = *prediction.add_apps();
    added.set_workflow_set(set.workflow_set);
    added.set_app_id(set.before.apps[i].id);
    *added.mutable_throughput_before() = Throughput(set.before, set.before.apps[i]);
    *added.mutable_throughput_after() = Throughput(set.after, set.after.apps[i]);
  }
}

}  // namespace

v1::Prediction Predict(const StateMachine& state, const Telemetry& telemetry,
                       const v1::Plan& plan) {
  const std::vector<InstanceView> before = PlacedInstances(state, telemetry);
  std::vector<InstanceView> after = before;
  Apply(state, plan, after);
  std::set<std::string> names;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].pool == after[i].pool && before[i].workflow_set == after[i].workflow_set)
      continue;
    names.insert(before[i].workflow_set);
    names.insert(after[i].workflow_set);
  }
  v1::Prediction prediction;
  if (names.empty()) {
    prediction.set_insufficient_data("nothing moves");
    return prediction;
  }
  std::vector<SetForecast> sets;
  for (const std::string& name : names) {
    SetForecast set{.workflow_set = name, .pools = PoolsOf(state, name)};
    set.before = MeasuredModel(state, telemetry, name, set.pools);
    set.after = set.before;
    SetWorkers(set.before, name, before);
    SetWorkers(set.after, name, after);
    sets.push_back(std::move(set));
  }
  prediction.set_insufficient_data(MissingData(sets));
  if (!prediction.insufficient_data().empty()) return prediction;
  prediction.set_basis(Basis(telemetry, sets));
  prediction.set_bottleneck_before(Bottleneck(sets, /*after=*/false));
  prediction.set_bottleneck_after(Bottleneck(sets, /*after=*/true));
  prediction.set_transient_loss_s(TransientLoss(telemetry, sets, before, after));
  for (const SetForecast& set : sets) {
    PredictPools(set, before, after, prediction);
    PredictApps(set, prediction);
  }
  return prediction;
}

}  // namespace onepiece::nodemanager
