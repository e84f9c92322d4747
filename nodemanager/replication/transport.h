// Carries messages between replicas: one gRPC stream to each peer.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/message.h"
#include "nodemanager/replication/group_id.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::nodemanager {

class Peer;

/// Delivers messages as well as it can, like the network. It drops what does not fit into a peer's
/// bounded queue or meets a broken connection, and consensus sends again.
///
/// Ownership: owns a thread for each peer. Borrows the clock, which must outlive it. It must
/// outlive its incoming streams: destroy it after the server has shut down.
/// Threading: thread-safe. The hooks are called concurrently, on gRPC's threads. They must not
/// block and must not call the transport. A stream costs no thread.
/// Blocking: only SetPeers(), SetGroup(), Stop() and the beginning of an incoming stream block.
/// They join the threads of peers that go.
class Transport : public v1::ReplicaService::CallbackService {
 public:
  struct Self {
    std::string cluster_id, name, address;
    paxos::ReplicaId replica;
    GroupId group;  ///< None while this replica has not joined a group.
  };
  struct Hooks {
    std::function<void(paxos::Message message)> receive;
    /// Called when this replica has no group yet, and a replica of `group` has spoken that means
    /// this one. The messages of that replica are dropped until SetGroup().
    std::function<void(const std::string& cluster_id, GroupId group)> invited;
  };

  Transport(Hooks hooks, base::Clock& clock);
  ~Transport() override;

  /// Begins to let callers in. Call it once.
  void Start(const Self& self);
  /// Sets where replicas are. Messages to replica 0 go to the seats and to `addresses`. Replicas
  /// without a seat are found by the hello that they send. Connections to replicas that are no
  /// longer named end.
  void SetPeers(const paxos::Members& members, const std::vector<std::string>& addresses);
  /// Sets the group that a new replica has joined.
  void SetGroup(const std::string& cluster_id, GroupId group);
  void Send(std::vector<paxos::Message> messages);
  /// The address that `replica` told when it connected last. It is empty when the replica has not
  /// connected, or its seat has moved since.
  [[nodiscard]] std::string FoundAt(paxos::ReplicaId replica) const;
  /// Ends all streams, in both directions. Idempotent.
  void Stop();

  grpc::ServerReadReactor<v1::ReplicaEnvelope>* Exchange(
      grpc::CallbackServerContext* context, google::protobuf::Empty* response) override;

 private:
  class Incoming;
  // A replica that has opened streams to this one.
  struct Speaker {
    std::uint64_t boot = 0;  // Tells its processes apart.
    base::MonotonicTime heard{};
    int streams = 0;
  };
  using PeerKey = std::pair<paxos::ReplicaId, std::string>;

  absl::Status RegisterSpeaker(const v1::ReplicaHello& hello);
  [[nodiscard]] absl::Status CheckGroup(const v1::ReplicaHello& hello) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the replica without a seat that has been silent for longest.
  void ForgetStranger() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseSpeaker(const v1::ReplicaHello& hello);
  // Takes an envelope of the stream that began with `hello`. An error ends the stream.
  absl::Status Take(const v1::ReplicaHello& hello, v1::ReplicaEnvelope& envelope);
  [[nodiscard]] const std::string* AddressOf(paxos::ReplicaId replica) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndOutdatedPeers();
  std::shared_ptr<Peer> FindPeer(paxos::ReplicaId replica, const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `ends` under mutex_.
  void EndPeers(const std::function<bool(const PeerKey&)>& ends);

  const Hooks hooks_;
  base::Clock& clock_;
  const std::uint64_t boot_;
  mutable base::Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  Self self_ ABSL_GUARDED_BY(mutex_);
  paxos::Members members_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> addresses_ ABSL_GUARDED_BY(mutex_);  // For messages to replica 0.
  // Where replicas say they are: of members it goes before their seat's address, and others have
  // no seat. At most kMaxSpeakers, as speakers_.
  std::map<paxos::ReplicaId, std::string> found_ ABSL_GUARDED_BY(mutex_);
  std::map<paxos::ReplicaId, Speaker> speakers_ ABSL_GUARDED_BY(mutex_);
  // Shared with Send(), which writes while it does not hold mutex_.
  std::map<PeerKey, std::shared_ptr<Peer>> peers_ ABSL_GUARDED_BY(mutex_);
  std::set<grpc::CallbackServerContext*> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::nodemanager
