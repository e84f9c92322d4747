// What the state looks like to those who ask and watch. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

v1::Cluster MakeSnapshot(const StateMachine& state);

/// What a watcher that knows everything up to `revision` must be told, in revision order; a record
/// that changed several times comes once. One snapshot when revision is 0, no longer held, or not
/// of this history.
std::vector<v1::ClusterEvent> ChangesAfter(const StateMachine& state, std::uint64_t revision);

/// READY proxies of a workflow set (empty: of all).
v1::ListProxiesResponse MakeProxyList(const StateMachine& state, const std::string& workflow_set);

/// One page in the order of app ids. Errors: INVALID_ARGUMENT (BAD_PAGE_SIZE, BAD_PAGE_TOKEN).
absl::StatusOr<v1::ListWorkflowsResponse> MakeWorkflowPage(const StateMachine& state,
                                                           const v1::ListWorkflowsRequest& request);

/// The app id in "workflows/{app_id}". Errors: INVALID_ARGUMENT (BAD_NAME).
absl::StatusOr<std::string> AppIdOfName(const std::string& name);

/// What a node may say of itself. Errors: INVALID_ARGUMENT (BAD_NODE).
absl::Status CheckNode(const v1::Node& node);

}  // namespace onepiece::nodemanager
