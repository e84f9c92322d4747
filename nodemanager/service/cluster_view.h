// Turns the state into answers for clients and watchers. All functions are pure.
#pragma once

#include <string>
#include <vector>

#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::nodemanager {

/// OK when the state knows this incarnation of the node or a later one. A state that was put back
/// from a backup may know neither the node nor its incarnation. Such a node registers again and
/// keeps its incarnation, and so its jobs in flight.
/// Errors: NOT_FOUND (NODE_UNKNOWN).
absl::Status CheckKnown(const StateMachine& state, const std::string& node_id,
                        std::uint64_t incarnation);

/// All nodes and workflows of the state.
v1::Cluster MakeSnapshot(const StateMachine& state);

/// What a watcher that knows everything up to `revision` must be told, in the order of revisions. A
/// record that changed several times comes once, with its latest value. The answer is one snapshot
/// when `revision` is 0, below state.history_floor(), or above the state's revision.
std::vector<v1::ClusterEvent> ChangesAfter(const StateMachine& state, std::uint64_t revision);

/// The READY proxies of a workflow set, or of all sets when `workflow_set` is empty.
v1::ListProxiesResponse MakeProxyList(const StateMachine& state, const std::string& workflow_set);

/// One page of workflows, in the order of app ids.
/// Errors: INVALID_ARGUMENT (BAD_PAGE_SIZE, BAD_PAGE_TOKEN).
absl::StatusOr<v1::ListWorkflowsResponse> MakeWorkflowPage(const StateMachine& state,
                                                           const v1::ListWorkflowsRequest& request);

/// The app id in "workflows/{app_id}".
/// Errors: INVALID_ARGUMENT (BAD_NAME).
absl::StatusOr<std::string> AppIdOfName(const std::string& name);

/// Checks what a node says of itself.
/// Errors: INVALID_ARGUMENT (BAD_NODE).
absl::Status CheckNode(const v1::Node& node);

}  // namespace onepiece::nodemanager
