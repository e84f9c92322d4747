// Carries messages between replicas: one gRPC stream to each peer.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "nodemanager/paxos/message.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::nodemanager {

class Peer;

/// Best effort, like the network: what does not fit into a peer's bounded queue, or meets a broken
/// connection, is dropped; consensus sends again.
///
/// Ownership  Owns a sending thread for each peer.
/// Threading  Thread-safe. The hooks are called on the server's threads and the senders',
///            concurrently; they must not call the transport.
/// Blocking   Never, but SetPeers(), SetGroup() and Stop(), and Exchange() when it begins: they
/// join
///            the threads of peers that go.
class Transport : public v1::ReplicaService::Service {
 public:
  struct Self {
    std::string cluster_id, name, address;
    paxos::ReplicaId replica = 0;
    std::uint64_t group = 0;  ///< 0: has not joined one yet.
  };
  struct Hooks {
    std::function<void(paxos::Message message)> receive;
    /// We have no group yet, and a replica of `group` that means us has spoken. Its messages are
    /// dropped until SetGroup().
    std::function<void(const std::string& cluster_id, std::uint64_t group)> invited;
  };

  explicit Transport(Hooks hooks);
  ~Transport() override;

  /// Until then every caller is sent away. REQUIRES: called once.
  void Start(const Self& self);
  /// Where replicas are; `addresses` besides for messages to replica 0. Others are found by the
  /// hello that they send. Connections to replicas that are no longer named end.
  void SetPeers(const paxos::Members& members, const std::vector<std::string>& addresses);
  /// A new replica learned its group.
  void SetGroup(const std::string& cluster_id, std::uint64_t group);
  void Send(std::vector<paxos::Message> messages);
  /// Where `replica` said it is when it connected last; empty: it has not, or its seat has moved.
  [[nodiscard]] std::string FoundAt(paxos::ReplicaId replica) const;
  /// Ends all streams, in both directions. Idempotent.
  void Stop();

  grpc::Status Exchange(grpc::ServerContext* context,
                        grpc::ServerReader<v1::ReplicaEnvelope>* reader,
                        google::protobuf::Empty* response) override;

 private:
  struct Speaker {
    std::uint64_t boot = 0;
    base::MonotonicTime heard{};
    int streams = 0;
  };
  using PeerKey = std::pair<paxos::ReplicaId, std::string>;

  absl::Status Admit(const v1::ReplicaHello& hello);
  [[nodiscard]] absl::Status CheckGroup(const v1::ReplicaHello& hello) const;
  void Dismiss(const v1::ReplicaHello& hello);
  absl::Status Listen(const v1::ReplicaHello& hello,
                      grpc::ServerReader<v1::ReplicaEnvelope>& reader);
  [[nodiscard]] const std::string* AddressOf(paxos::ReplicaId replica) const;
  void EndOutdatedPeers();
  Peer* FindPeer(paxos::ReplicaId replica, const std::string& address);
  void EndPeers(const std::function<bool(const PeerKey&)>& ends);

  const Hooks hooks_;
  const std::uint64_t boot_;
  mutable std::mutex mutex_;  // Guards all below.
  bool started_ = false, stopped_ = false;
  Self self_;
  paxos::Members members_;
  std::set<std::string> addresses_;  // For messages to replica 0.
  // Where replicas say they are: of members it goes before their seat's address, and others have
  // no seat. At most kMaxSpeakers, as speakers_.
  std::map<paxos::ReplicaId, std::string> found_;
  std::map<paxos::ReplicaId, Speaker> speakers_;
  std::map<PeerKey, std::unique_ptr<Peer>> peers_;
  std::set<grpc::ServerContext*> streams_;
};

}  // namespace onepiece::nodemanager
