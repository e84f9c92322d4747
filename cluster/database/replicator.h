// Replicator: keeps the other keepers of every job up to date, and confirms the end of a job when
// all of them that answer know it, and a result when it has all copies that it can have now.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/database/peer.h"
#include "cluster/database/settlements.h"
#include "cluster/node/cluster_view.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

struct ReplicatorOptions {
  std::string node_id;  ///< This database, which is never a peer.
  int copies = 2;       ///< Copies of each job, this database's included.
  /// A peer agrees to a success only when it has the result too.
  bool bytes_needed = true;
  /// How long a peer may take to agree to an end, or to confirm that it has a result. Then it
  /// counts as away. Scaled.
  base::Duration confirm_timeout = std::chrono::seconds(2);
  /// How long a result is held while its copy is still being sent. Scaled.
  base::Duration hold_limit = std::chrono::seconds(20);
  /// After a peer has been away for this long, its queues are dropped. Scaled.
  base::Duration forget_after = std::chrono::minutes(10);
};

/// Sends each job to its keepers (cluster/database/placement.h) among the databases in the routing.
/// A database that is away, and would be a keeper if it were back, gets a hint. A slow peer does
/// not hold up the others, since each peer has its own queues and threads. There are at most
/// kMaxPeers peers, with SendQueue::kMaxWaiting uids in each of a peer's two queues. Ends that are
/// not settled are remembered for at most hold_limit.
///
/// Ownership: owns its peers and a thread. Borrows the store and the ways from Start() to Stop().
/// Threading: thread-safe. Enqueue, Hold and Settle may be called under the store's locks.
/// Blocking: Enqueue, Hold and Settle never wait. Stop waits for the calls in progress.
class Replicator {
 public:
  static constexpr std::size_t kMaxPeers = 64;
  /// Confirms the end of a job (JobStore::Confirm). Called on a thread of the replicator or of
  /// Receive, when no other keeper has to be asked any more.
  using Confirm = std::function<bool(const base::Uid&)>;

  Replicator(const node::ClusterView& cluster, ReplicatorOptions options,
             base::Clock& clock = base::SystemClock());
  ~Replicator();
  Replicator(const Replicator&) = delete;
  Replicator& operator=(const Replicator&) = delete;

  void Start(JobStore& store, Peer::Ways ways, Confirm confirm);
  void Stop();

  /// Sends a change to the job's keepers. The store's `changed` hook calls it. Before Start() it
  /// does nothing.
  void Enqueue(const base::Uid& uid, Change change);
  /// Returns whether another keeper of the job is in the routing and answers.
  [[nodiscard]] bool CanCopy(const base::Uid& uid);
  /// Sends a held result before the other results. A peer that stored it sends its record, and the
  /// merge of that record makes the result count here too. Otherwise the replicator confirms the
  /// result itself: when it could be sent to none of the keepers that answer, or when
  /// confirm_timeout has passed since its copy was sent. A keeper that was silent until then gets a
  /// hint.
  void Hold(const base::Uid& uid);
  /// Asks the other keepers that answer whether they agree to the end that the job's record
  /// proposes, and confirms it when all of them do (Receive), or when they are silent for
  /// confirm_timeout. Returns false when there is nobody to ask. A further call asks all of them
  /// again.
  bool Settle(const base::Uid& uid);
  /// Joins what a peer knows into the store, and notes to which ends it agrees by that. Returns
  /// what the peer should be answered.
  std::vector<v1::JobRecord> Receive(const std::string& node_id,
                                     std::span<const v1::JobRecord> records);
  /// Sends a change to one peer, whether it is a keeper of the job or not. Does nothing when there
  /// is no such peer.
  void EnqueueFor(const std::string& node_id, const base::Uid& uid, Change change);

  /// Returns whether nothing waits for this peer and nothing is on its way to it.
  [[nodiscard]] bool IsIdle(const std::string& node_id);
  /// Returns the sums over all peers.
  [[nodiscard]] PeerStats stats() const;
  [[nodiscard]] std::vector<v1::DatabasePeer> peers();
  /// Returns how many ends counted, and held results, before a second keeper had them.
  [[nodiscard]] std::uint64_t confirmed_alone() const { return confirmed_alone_; }

 private:
  /// The peers that this routing table and the earlier ones named. Immutable.
  struct View {
    std::shared_ptr<const node::Routing> routing;
    Places alive;  ///< Databases in the routing, this one included.
    Places known;  ///< The same, and the databases that are away, at their last places.
    std::map<std::string, std::shared_ptr<Peer>> peers;
  };
  /// Returns null while the replicator does not run.
  std::shared_ptr<const View> CurrentView();
  std::shared_ptr<const View> MakeView(std::shared_ptr<const node::Routing> routing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Returns the peers that should be told of a job, each with whether it is in the routing.
  std::vector<std::pair<Peer*, bool>> TargetsOf(const View& view, const base::Uid& uid) const;
  void Failed(const std::string& node_id, const base::Uid& uid);
  bool WaitsFor(const std::string& node_id, const base::Uid& uid);
  bool Resolve(const std::string& node_id, const base::Uid& uid);
  bool AskNewKeepers(const base::Uid& uid);
  std::set<std::string> KeepersThat(bool (Peer::*can)() const, const View& view,
                                    const base::Uid& uid) const;
  bool NeedsBytes(const std::string& node_id);
  void Await(const base::Uid& uid, const std::set<std::string>& keepers);
  bool ConfirmAlone(const base::Uid& uid);
  std::vector<Settlements::Overdue> TakeOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(const Settlements::Overdue& overdue);
  void Upkeep(const std::stop_token& stop);
  void ForgetPeers();

  const node::ClusterView& cluster_;
  const ReplicatorOptions options_;
  base::Clock& clock_;
  // Start sets these three before `running_`, and nobody changes them afterwards.
  JobStore* store_ = nullptr;
  std::optional<Peer::Ways> ways_;
  Confirm confirm_;
  std::atomic<std::uint64_t> confirmed_alone_{0};
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const View> view_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, base::MonotonicTime> away_since_ ABSL_GUARDED_BY(mutex_);
  // Counts of the peers that were dropped.
  PeerStats forgotten_ ABSL_GUARDED_BY(mutex_);
  Settlements settlements_ ABSL_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace onepiece::database
