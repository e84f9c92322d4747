// Keeps the other databases among the first `copies` of every job up to date, and says when a
// result has all the copies that it can have now.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/database/peer.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/outbox.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct ReplicatorOptions {
  std::string node_id;  ///< Ours: never a peer.
  int copies = 2;       ///< Of each job, this one included.
  /// A peer that did not say for so long that it has a result counts as not there. Scaled.
  base::Duration confirm_timeout = std::chrono::seconds(2);
  /// What waits for a peer that is away for so long is forgotten. Scaled.
  base::Duration forget_after = std::chrono::minutes(10);
};

/// A job goes to the databases among the first `copies` for its uid (cluster/database/placement.h),
/// of those in the routing; one that is away and would be among them if it were back gets a hint.
/// A slow peer holds up nobody else: each has its own queues and threads.
///
/// Ownership: Owns its peers and a thread. Borrows the store and the outbox from Start() to Stop().
/// Threading: Thread-safe. Enqueue and Hold may be called under the store's locks.
/// Blocking: Enqueue and Hold never wait. Stop waits for the calls in progress.
/// Bounds: kMaxPeers peers, Peer::kMaxWaiting uids in each of a peer's two queues; of held results
/// the uids of the last confirm_timeout.
class Replicator {
 public:
  static constexpr std::size_t kMaxPeers = 64;
  /// JobStore::Confirm. Called on a thread of the replicator's when no more copies can be made now.
  using Confirm = std::function<bool(const base::Uid&)>;

  Replicator(const node::ClusterView& cluster, ReplicatorOptions options,
             base::Clock& clock = base::SystemClock());
  ~Replicator();
  Replicator(const Replicator&) = delete;
  Replicator& operator=(const Replicator&) = delete;

  void Start(const JobStore& store, node::Outbox& outbox, Confirm confirm);
  void Stop();

  /// The store's observer. Before Start() there is nobody to send to.
  void Enqueue(const base::Uid& uid, Change change);
  /// Whether a peer that should have the job is there and answers.
  [[nodiscard]] bool CanCopy(const base::Uid& uid);
  /// Sends this result before others. A peer that has it says so by its record, which makes it
  /// count here too; it is confirmed when each peer that should have a copy and answers could not
  /// be sent it, or when confirm_timeout has passed: who was silent then gets a hint.
  void Hold(const base::Uid& uid);
  /// For one peer, whether it should have the job or not; nobody of that name: ignored.
  void EnqueueFor(const std::string& node_id, const base::Uid& uid, Change change);

  /// Nothing waits for this peer or is on its way to it.
  [[nodiscard]] bool IsIdle(const std::string& node_id);
  /// Sums over all peers.
  [[nodiscard]] PeerStats stats() const;
  [[nodiscard]] std::vector<v1::DatabasePeer> peers();

 private:
  /// The peers that one routing table and those before it told of. Immutable.
  struct View {
    std::shared_ptr<const node::Routing> routing;
    std::vector<std::string> alive;  ///< Databases in the routing, this one included.
    std::vector<std::string> known;  ///< With those that are away.
    std::map<std::string, std::shared_ptr<Peer>> peers;
  };
  struct Held {
    std::set<std::string> missing;  ///< Peers that may yet say that they have it.
    base::MonotonicTime until;
  };

  /// Null while not running.
  std::shared_ptr<const View> CurrentView();
  std::shared_ptr<const View> MakeView(std::shared_ptr<const node::Routing> routing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Those that should be told of a job: each peer, and whether it is in the routing.
  std::vector<std::pair<Peer*, bool>> TargetsOf(const View& view, const base::Uid& uid) const;
  void Failed(const std::string& node_id, const base::Uid& uid);
  void GiveUp(const base::Uid& uid, const Held& held);
  void Upkeep(const std::stop_token& stop);
  void ForgetPeers();

  const node::ClusterView& cluster_;
  const ReplicatorOptions options_;
  base::Clock& clock_;
  const JobStore* store_ = nullptr;  // Set by Start, as are the next two.
  node::Outbox* outbox_ = nullptr;
  Confirm confirm_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const View> view_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, base::MonotonicTime> away_since_ ABSL_GUARDED_BY(mutex_);
  // Counts of peers that are no more.
  PeerStats forgotten_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<base::Uid, Held> held_ ABSL_GUARDED_BY(mutex_);
  // Of held_, oldest first.
  std::deque<std::pair<base::MonotonicTime, base::Uid>> due_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace onepiece::database
