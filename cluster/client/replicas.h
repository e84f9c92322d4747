// What the NodeManager's replicas say, judged: is the group healthy, and what to do when not.
#pragma once

#include <string>
#include <vector>

#include "cluster/client/client.h"

namespace onepiece::client {

/// "leader", "follower", "candidate", "learner".
std::string ReplicaRoleName(const v1::ReplicaStatus& status);

/// The replica that leads: of several that say so the one of the highest round; nullptr: none.
const v1::ReplicaStatus* FindLeader(const std::vector<ReplicaAnswer>& replicas);

/// What is wrong and what to do, one line each; empty when the group is healthy.
std::vector<std::string> AdviceFor(const std::vector<ReplicaAnswer>& replicas);

}  // namespace onepiece::client
