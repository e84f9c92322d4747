#include "cluster/cli/choose_replica.h"

#include "cluster/base/status.h"

namespace onepiece::cli {

absl::StatusOr<client::ReplicaAnswer> ChooseReplica(client::Client& client,
                                                    const std::string& name) {
  const std::vector<client::ReplicaAnswer> replicas = client.AskReplicas();
  const v1::ReplicaStatus* leader = client::FindLeader(replicas);
  const std::string wanted = name.empty() && leader != nullptr ? leader->name() : name;
  absl::Status silent;
  std::string known;
  for (const auto& replica : replicas) {
    known += " " + (replica.name.empty() ? replica.address : replica.name);
    if (!wanted.empty() && replica.name != wanted) continue;
    if (replica.status.ok()) return replica;
    silent = base::Annotate(replica.status.status(), replica.address);
  }
  if (!silent.ok()) return silent;
  return base::MakeError(absl::StatusCode::kNotFound, "REPLICA_UNKNOWN",
                         "no replica is called '" + name + "'; there are:" + known);
}

}  // namespace onepiece::cli
