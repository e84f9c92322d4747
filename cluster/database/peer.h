// Another database, as this one feeds it: what it has yet to be told, and the threads that tell it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/outbox.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::database {

struct PeerOptions {
  std::string node_id;  ///< The peer's.
  base::Duration call_timeout = std::chrono::seconds(2);
  base::Duration deliver_timeout = std::chrono::seconds(5);
  base::Duration patience = std::chrono::seconds(1);  ///< While its ring cannot be opened.
  base::Duration retry_pause = std::chrono::milliseconds(200);
  base::Duration distrust = std::chrono::seconds(10);  ///< After Distrust(). Scaled.
};

struct PeerStats {
  std::uint64_t records_sent = 0, results_sent = 0, failures = 0, dropped = 0;
  std::int64_t records_waiting = 0, results_waiting = 0;
};

/// The queues hold uids, not data: a job that changes ten times while the peer is slow or away is
/// sent once, as it stands then. While the peer is not in the routing they are hints, for when it
/// is back; what is dropped beyond kMaxWaiting is found by anti-entropy.
///
/// Ownership: Owns its two threads (records; results) and its connection. Borrows store, outbox and
/// clock.
/// Threading: Thread-safe.
/// Blocking: Enqueue never waits. Stop waits for the calls in progress.
class Peer {
 public:
  static constexpr std::size_t kMaxWaiting = 100'000;
  enum class What {
    kRecord,
    kResult,
    kUrgentResult,  ///< Before the other results: somebody waits for it.
  };
  /// Told when a result could not be sent. Runs on a thread of the peer's. Of one that lies in the
  /// peer's ring nobody knows more until the peer tells of the job.
  using Failed = std::function<void(const base::Uid&)>;

  Peer(const node::ClusterView& view, PeerOptions options, const JobStore& store,
       node::Outbox& outbox, Failed failed, base::Clock& clock);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Nothing is sent after it. Idempotent; one thread at a time.
  void Stop();
  [[nodiscard]] const std::string& node_id() const { return options_.node_id; }
  void Enqueue(const base::Uid& uid, What what);
  /// In the routing, not distrusted, and its last answer was none of silence.
  [[nodiscard]] bool Answers() const;
  /// It took a result and never said so: as it now runs, it counts as not answering for a while.
  void Distrust();
  /// Nothing waits or is being sent.
  [[nodiscard]] bool IsIdle() const;
  [[nodiscard]] PeerStats stats() const;

 private:
  /// Uids in order of arrival, urgent ones first, each once.
  struct Queue {
    std::deque<base::Uid> urgent, order;  // With uids that are not in `waiting` any more.
    std::unordered_set<base::Uid> waiting;
    bool busy = false;  ///< Its thread is sending what it took.

    /// False when another one was dropped for it.
    bool Add(const base::Uid& uid, bool is_urgent);
    std::vector<base::Uid> Take(std::size_t count);
  };
  enum class Sent { kYes, kTryAgain, kNever };

  Queue& QueueOf(What what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return what == What::kRecord ? records_ : results_;
  }
  void Run(What what, std::size_t count, const std::stop_token& stop,
           const std::function<std::vector<base::Uid>(const v1::Endpoint&,
                                                      const std::vector<base::Uid>&)>& send);
  [[nodiscard]] std::optional<v1::Endpoint> Endpoint() const;
  std::vector<base::Uid> SendRecords(const v1::Endpoint& endpoint,
                                     const std::vector<base::Uid>& uids);
  std::vector<base::Uid> SendResults(const v1::Endpoint& endpoint,
                                     const std::vector<base::Uid>& uids);
  Sent SendResult(const base::Uid& uid);
  void Note(const v1::Endpoint& endpoint, bool took);

  const node::ClusterView& view_;
  const PeerOptions options_;
  const JobStore& store_;
  node::Outbox& outbox_;
  const Failed failed_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  Queue records_ ABSL_GUARDED_BY(mutex_);
  Queue results_ ABSL_GUARDED_BY(mutex_);
  PeerStats stats_ ABSL_GUARDED_BY(mutex_);
  // That did not take what it was sent last; 0: none.
  std::uint64_t silent_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t distrusted_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  base::MonotonicTime distrusted_until_ ABSL_GUARDED_BY(mutex_){};
  // Of the records thread alone:
  std::string stub_address_;
  std::unique_ptr<v1::DatabaseService::Stub> stub_;
  std::jthread record_thread_, result_thread_;
};

}  // namespace onepiece::database
