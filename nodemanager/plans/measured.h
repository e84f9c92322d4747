// What was measured, in the terms of the capacity model. Private to this folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/capacity/capacity_model.h"
#include "cluster/capacity/cost_fit.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/plans/plans.h"

namespace onepiece::nodemanager {

/// The workflow sets in which a live proxy or instance works, in order.
std::vector<std::string> WorkflowSets(const StateMachine& state);

/// The proxies of that set that take jobs.
std::vector<std::string> ReadyProxies(const StateMachine& state, const std::string& workflow_set);

/// How many jobs the instance computes at a time, as it says. At least 1.
int WorkersOf(const Telemetry& telemetry, const std::string& node_id);

/// How many instances each place (workflow set and pool) has once the plans under way have ended.
/// Instances that cannot load their model do not count.
std::map<std::pair<std::string, std::string>, int> CountInstances(const StateMachine& state);

/// The moves that have not ended and count at one place.
struct MoveCounts {
  int leaving = 0;    ///< They take an instance from there.
  int arriving = 0;   ///< They bring an idle instance.
  int under_way = 0;  ///< How many of both are under way.
};
/// By place. A move counts at the place that loses the instance, or, when the instance is idle, at
/// the place that gets it.
std::map<std::pair<std::string, std::string>, MoveCounts> CountMoves(const StateMachine& state);
/// The place where the move counts.
std::pair<std::string, std::string> CountedPlace(const StateMachine& state, const v1::Move& move);

/// The live instances, each where its placement or the plan under way puts it. An instance that is
/// on its way counts where it goes, and its utilisation is unknown until it works there.
std::vector<InstanceView> PlacedInstances(const StateMachine& state, const Telemetry& telemetry);

/// The demand of the set's proxies and the costs in its pools. A stage with cost terms costs what
/// the jobs that are asked for cost there on average, and any other what the measured ones did. The
/// pools have no workers yet: SetWorkers().
capacity::Model MeasuredModel(const StateMachine& state, const Telemetry& telemetry,
                              const std::string& workflow_set, const std::vector<Pool>& pools);

/// Gives each pool of the model the workers of its instances.
void SetWorkers(capacity::Model& model, const std::string& workflow_set,
                const std::vector<InstanceView>& instances);

/// What each term of the stage's cost takes, or nullopt when it has no terms, or nothing was
/// measured by them.
std::optional<capacity::CostFit> FitOf(const v1::StageSpec& spec, const LoadWindow::Work& work);

/// Adds what each stage of each application costs, as the window measured it.
void AddCosts(const StateMachine& state, const Telemetry& telemetry,
              google::protobuf::RepeatedPtrField<v1::StageCost>& costs);

/// The mean utilisation of the pool's measured instances, weighted by their workers, or nullopt
/// when none is measured.
std::optional<double> MeanUtilization(const std::vector<InstanceView>& instances,
                                      const std::string& workflow_set, const std::string& pool);

}  // namespace onepiece::nodemanager
