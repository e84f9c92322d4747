// What grpc.health.v1 says of a NodeManager's services.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "nodemanager/replication/replicated_log.h"

namespace onepiece::nodemanager {

/// Calls `set` for each service, and for "", the server as a whole.
///
/// - "" says whether this replica takes part: a load balancer or a supervisor may ask it. Without a
///   majority there is no leader, and restarting a replica that would take part helps nobody, so a
///   missing leader does not count here.
/// - The services that only a leader answers are well while this replica leads or can name the
///   leader.
/// - ConsensusService tells what is wrong, so it is always well.
void SetHealth(ReplicaFitness fitness,
               absl::FunctionRef<void(const std::string& service, bool serving)> set);

}  // namespace onepiece::nodemanager
