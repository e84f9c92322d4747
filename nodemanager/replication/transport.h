// Carries messages between replicas: one gRPC stream to each peer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nodemanager/paxos/message.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::nodemanager {

/// Best effort, like the network: what does not fit into a peer's bounded queue, or meets a broken
/// connection, is dropped; consensus sends again.
///
/// Ownership  Owns a sending thread for each peer.
/// Threading  Thread-safe. `receive` is called on the server's threads, concurrently.
/// Blocking   Never, but Stop(), which joins.
class Transport : public v1::ReplicaService::Service {
 public:
  struct Self {
    std::string cluster_id, name, address;
    paxos::ReplicaId replica = 0;
  };
  using Receive = std::function<void(paxos::Message message)>;
  /// Told when a peer is of another cluster, has our id, or is not whom we meant.
  using Refused = std::function<void(const absl::Status& why)>;

  Transport(Self self, Receive receive, Refused refused);
  ~Transport() override;

  /// Where replicas are, from the members and from Join; addresses for `to` 0 besides. Connections
  /// to replicas that are no longer named end.
  void SetPeers(const paxos::Members& members, const std::vector<std::string>& addresses);
  /// A new replica learned its cluster.
  void SetCluster(const std::string& cluster_id);
  void Send(std::vector<paxos::Message> messages);
  void Stop();
};

}  // namespace onepiece::nodemanager
