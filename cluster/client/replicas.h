// Judges what the NodeManager's replicas say: whether the group is healthy, and what to do if it is
// not.
#pragma once

#include <string>
#include <vector>

#include "cluster/client/client.h"

namespace onepiece::client {

/// Returns "leader", "follower", "candidate", "learner" or "unknown".
std::string ReplicaRoleName(const v1::ReplicaStatus& status);

/// Returns the replica that leads, or nullptr. When several say that they lead, it is the one with
/// the highest round.
const v1::ReplicaStatus* FindLeader(const std::vector<ReplicaAnswer>& replicas);

/// Returns what is wrong and what to do, one line each. Empty when the group is healthy.
std::vector<std::string> AdviceFor(const std::vector<ReplicaAnswer>& replicas);

}  // namespace onepiece::client
