#include "nodemanager/plans/measured.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "cluster/workflow/graph.h"
#include "cluster/workflow/pool.h"
#include "cluster/workflow/work_units.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::nodemanager {
namespace {

// Sets where the node counts: where the plan under way takes it, else its placement, else its
// assignment.
void SetPlace(const v1::NodeRecord& record, const v1::Move* move, InstanceView& view) {
  const v1::Node& node = record.node();
  view.workflow_set = node.workflow_set();
  const v1::Placement* placement = node.has_placement() ? &node.placement() : nullptr;
  if (move != nullptr &&
      (move->phase() == v1::Move::PENDING || move->phase() == v1::Move::DRAINING))
    placement = &move->to();
  if (placement == nullptr) {
    view.pool = AssignedPool(node);
    return;
  }
  std::tie(view.workflow_set, view.pool) = PlaceOf(record, *placement);
}

// When each node last moved, according to the plans that the state remembers.
std::map<std::string, base::MonotonicTime> LastMoves(const StateMachine& state,
                                                     const Telemetry& telemetry) {
  std::map<std::string, base::MonotonicTime> last;
  for (const v1::Plan& plan : state.plans()) {
    for (const v1::Move& move : plan.moves()) {
      const base::MonotonicTime at =
          telemetry.now - telemetry.ages->AgeOf(plan, move, telemetry.now);
      const auto [known, is_new] = last.try_emplace(move.node_id(), at);
      if (!is_new) known->second = std::max(known->second, at);
    }
  }
  return last;
}

void SetDemand(const LoadWindow::Work& work, capacity::StageDemand& demand) {
  if (work.jobs == 0) return;
  const auto jobs = static_cast<double>(work.jobs);
  demand.samples = work.jobs;
  demand.seconds_per_job = work.compute_s / jobs;
  demand.transfer_s = work.transfer_s / jobs;
  // The mean of the squares less the square of the mean. Rounding can make it negative.
  const double variance = work.squares_s2 / jobs - demand.seconds_per_job * demand.seconds_per_job;
  if (demand.seconds_per_job > 0 && variance > 0)
    demand.variation = std::sqrt(variance) / demand.seconds_per_job;
}

// Sets what the stages with cost terms are asked for, by all their terms. Their jobs may be larger
// or smaller than those that were measured. REQUIRES: app.arrivals_per_s is set.
void SetDemandByTerms(const v1::Workflow& workflow, const LoadWindow::Asked& asked,
                      const std::vector<const LoadWindow::Work*>& done, capacity::App& app) {
  if (!(app.arrivals_per_s > 0)) return;
  for (std::size_t i = 0; i < app.stages.size(); ++i) {
    const v1::StageSpec& spec = workflow.stages(static_cast<int>(i));
    const auto fit = FitOf(spec, *done[i]);
    if (!fit) continue;
    if (const auto seconds = asked.SecondsOf(spec.stage(), fit->seconds_per_term))
      app.stages[i].seconds_per_job = *seconds / app.arrivals_per_s;
  }
}

}  // namespace

std::optional<capacity::CostFit> FitOf(const v1::StageSpec& spec, const LoadWindow::Work& work) {
  if (spec.cost_terms().empty() || work.jobs == 0 || work.terms.terms != spec.cost_terms_size())
    return std::nullopt;
  return capacity::FitCosts(work.terms, workflow::UnitTerm(spec),
                            work.compute_s / static_cast<double>(work.jobs));
}

std::vector<std::string> WorkflowSets(const StateMachine& state) {
  std::set<std::string> sets;
  for (const auto& [id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    if (IsAlive(node) && (node.role() == v1::PROXY || node.role() == v1::INSTANCE))
      sets.insert(node.workflow_set());
  }
  return {sets.begin(), sets.end()};
}

std::vector<std::string> ReadyProxies(const StateMachine& state, const std::string& workflow_set) {
  std::vector<std::string> proxies;
  for (const auto& [id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    if (node.role() == v1::PROXY && node.state() == v1::Node::READY &&
        node.workflow_set() == workflow_set)
      proxies.push_back(id);
  }
  return proxies;
}

int WorkersOf(const Telemetry& telemetry, const std::string& node_id) {
  const v1::NodeLoad* load = telemetry.window->Last(node_id);
  return load == nullptr ? 1 : std::max(1, load->workers());
}

std::vector<InstanceView> PlacedInstances(const StateMachine& state, const Telemetry& telemetry) {
  const std::vector<Pool> pools = PoolsOf(state, "");  // Limits do not matter here.
  const std::map<std::string, base::MonotonicTime> moved = LastMoves(state, telemetry);
  const std::map<std::string, const v1::Move*> moves = RunningMoves(state.plans());
  std::vector<InstanceView> instances;
  for (const auto& [id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    if (node.role() != v1::INSTANCE || !IsAlive(node)) continue;
    const auto running = moves.find(id);
    const v1::Move* move = running == moves.end() ? nullptr : running->second;
    const v1::Activity activity = ActivityOf(record, telemetry.window->Last(id));
    const bool serves_nobody = activity == v1::QUARANTINED || activity == v1::STUCK;
    InstanceView view{.node_id = id,
                      .pinned_stage = node.pinned_stage(),
                      .host = node.host(),
                      .zone = node.zone()};
    for (const Pool& pool : pools) {
      if (!HasDevice(node, pool)) view.unfit_pools.push_back(pool.id);
    }
    SetPlace(record, move, view);
    view.movable = move == nullptr && !serves_nobody && !node.placement().pinned() &&
                   !node.placement().removed();
    view.workers = serves_nobody ? 0 : WorkersOf(telemetry, id);
    // Its utilisation is that of the place where it works, not of the one where a plan will put it.
    if (view.workflow_set == node.workflow_set() && view.pool == AssignedPool(node))
      view.utilization = telemetry.window->MeanUtilization(id, telemetry.now);
    if (const auto last = moved.find(id); last != moved.end()) view.since = last->second;
    instances.push_back(std::move(view));
  }
  return instances;
}

capacity::Model MeasuredModel(const StateMachine& state, const Telemetry& telemetry,
                              const std::string& workflow_set, const std::vector<Pool>& pools) {
  capacity::Model model;
  std::map<std::string, decltype(telemetry.window->WorkOf("", {}))> work;
  for (const Pool& pool : pools) {
    model.pools.push_back({.id = pool.id, .workers = 0});
    work[pool.id] = telemetry.window->WorkOf(pool.id, telemetry.now);
  }
  const auto asked = telemetry.window->AskedOf(ReadyProxies(state, workflow_set), telemetry.now);
  for (const auto& [app_id, record] : state.workflows()) {
    capacity::App app{.id = app_id};
    UnitsPerJob units_per_job;
    std::vector<const LoadWindow::Work*> works;  // Of the stages.
    const workflow::Graph graph(record.workflow());
    for (const v1::StageSpec& spec : record.workflow().stages()) {
      capacity::StageDemand demand{.stage = spec.stage(), .pool = workflow::PoolIdOf(spec)};
      const auto after = graph.Predecessors(spec.stage());
      demand.after.assign(after.begin(), after.end());
      const LoadWindow::Work& done = work[demand.pool][{app_id, spec.stage()}];
      SetDemand(done, demand);
      units_per_job.AddStage(done.jobs, done.units);
      works.push_back(&done);
      app.stages.push_back(std::move(demand));
    }
    if (const auto demand = asked.find(app_id); demand != asked.end()) {
      app.arrivals_per_s = demand->second.JobsOf(units_per_job.value());
      SetDemandByTerms(record.workflow(), demand->second, works, app);
    }
    model.apps.push_back(std::move(app));
  }
  return model;
}

void SetWorkers(capacity::Model& model, const std::string& workflow_set,
                const std::vector<InstanceView>& instances) {
  std::map<std::string, double> workers;
  for (const InstanceView& instance : instances) {
    if (instance.workflow_set == workflow_set) workers[instance.pool] += instance.workers;
  }
  for (capacity::Pool& pool : model.pools) pool.workers = workers[pool.id];
}

std::optional<double> MeanUtilization(const std::vector<InstanceView>& instances,
                                      const std::string& workflow_set, const std::string& pool) {
  double busy = 0, workers = 0;
  for (const InstanceView& instance : instances) {
    if (instance.workflow_set != workflow_set || instance.pool != pool || instance.workers <= 0 ||
        !instance.utilization.has_value())
      continue;
    busy += *instance.utilization * instance.workers;
    workers += instance.workers;
  }
  return workers > 0 ? std::optional(busy / workers) : std::nullopt;
}

}  // namespace onepiece::nodemanager
