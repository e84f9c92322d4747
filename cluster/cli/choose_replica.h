// Finds the replica that a verb of `onepiece cluster` asks.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cluster/client/replicas.h"

namespace onepiece::cli {

/// Returns the replica of that name. With an empty name, it is the leader, or else any replica that
/// answers.
///
/// Errors: NOT_FOUND (REPLICA_UNKNOWN), and why the replica does not answer.
absl::StatusOr<client::ReplicaAnswer> ChooseReplica(client::Client& client,
                                                    const std::string& name);

}  // namespace onepiece::cli
