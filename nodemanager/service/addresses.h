// Whether the nodes of a cluster can reach each other by the addresses that they advertise.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// Returns true when only the same host can dial this host:port: 127.0.0.0/8, ::1 or localhost.
/// Names are not looked up.
bool IsLoopback(std::string_view address);

/// Checks that the node's address and those of the other live nodes are all of one host, or all
/// reachable from elsewhere. `peer` is where the registration comes from, as gRPC writes it.
///
/// Errors: FAILED_PRECONDITION (LOOPBACK_ADDRESS), which says who has to be given --advertise.
absl::Status CheckLoopback(const StateMachine& state, const v1::Node& node,
                           const std::string& peer);

/// Connects to a gRPC server and closes the connection.
///
/// Blocking: for `limit` at most.
/// Errors: FAILED_PRECONDITION (UNREACHABLE_ADDRESS), which names the address.
absl::Status Dial(const std::string& address, base::Duration limit);

}  // namespace onepiece::nodemanager
