// What differs between two routing tables of one workflow set, and a table made of another one and
// that difference.
#pragma once

#include "absl/status/status.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

/// Returns the delta that makes `to` of `from` (RoutingTable.base_epoch).
///
/// REQUIRES: both are whole tables of one set. Endpoints are sorted by node id, and workflows by
/// app id, as StateMachine::Routing() gives them.
v1::RoutingTable MakeRoutingDelta(const v1::RoutingTable& from, const v1::RoutingTable& to);

/// Makes the table that `delta` leads to of `table`. Endpoints stay sorted.
///
/// Errors: FAILED_PRECONDITION (OTHER_BASE): the delta begins at another table than this one. The
/// table is unchanged then.
absl::Status ApplyRoutingDelta(const v1::RoutingTable& delta, v1::RoutingTable& table);

}  // namespace onepiece::node
