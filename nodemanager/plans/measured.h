// What has been measured, in the terms of the capacity model. For the files of this folder.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/capacity/capacity_model.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/plans/plans.h"

namespace onepiece::nodemanager {

/// In order: every one that a live node works in.
std::vector<std::string> WorkflowSets(const StateMachine& state);

/// Proxies of that set that take jobs.
std::vector<std::string> ReadyProxies(const StateMachine& state, const std::string& workflow_set);

/// Jobs that the instance computes at a time, as it says; at least 1.
int WorkersOf(const Telemetry& telemetry, const std::string& node_id);

/// Instances of each pool of a workflow set once plans under way have ended; those that cannot load
/// do not count.
std::map<std::pair<std::string, std::string>, int> CountInstances(const StateMachine& state);

/// Live instances, where their placement or the plan under way puts them: one that is on its way
/// counts where it goes, and how busy it is is not known until it works there.
std::vector<InstanceView> PlacedInstances(const StateMachine& state, const Telemetry& telemetry);

/// Demand of the set's proxies and costs of the pools, which have no workers yet.
capacity::Model MeasuredModel(const StateMachine& state, const Telemetry& telemetry,
                              const std::string& workflow_set, const std::vector<Pool>& pools);

/// Gives each pool of the model the workers of its instances.
void SetWorkers(capacity::Model& model, const std::string& workflow_set,
                const std::vector<InstanceView>& instances);

/// Mean of those that are measured, by their workers; nullopt: none is.
std::optional<double> MeanUtilization(const std::vector<InstanceView>& instances,
                                      const std::string& workflow_set, const std::string& pool);

}  // namespace onepiece::nodemanager
