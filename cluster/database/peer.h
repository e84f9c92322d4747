// Peer: another database to which this one sends records and results, with the queues of what the
// peer has yet to be sent and the threads that send it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/database/job_store.h"
#include "cluster/database/send_queue.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/outbox.h"
#include "cluster/values/remote_values.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::database {

struct PeerOptions {
  std::string node_id;  ///< The peer's.
  base::Duration call_timeout = std::chrono::seconds(2);
  base::Duration deliver_timeout = std::chrono::seconds(5);
  base::Duration patience = std::chrono::seconds(1);  ///< To wait for a ring that cannot be opened.
  base::Duration retry_pause = std::chrono::milliseconds(200);
  base::Duration distrust = std::chrono::seconds(3);  ///< How long Distrust() lasts. Scaled.
};

struct PeerStats {
  std::uint64_t records_sent = 0, results_sent = 0, failures = 0, dropped = 0;
  std::int64_t records_waiting = 0, results_waiting = 0;
};

/// Feeds one peer. The queues hold uids, not data, so changes are coalesced: a job that changes ten
/// times while the peer is slow or away is sent once, with its latest state. While the peer is not
/// in the routing, the queues hold hints for the time when it is back. Uids beyond
/// SendQueue::kMaxWaiting are dropped, and anti-entropy finds them later.
///
/// Ownership: owns two threads (one for records, one for results) and its connection. Borrows
/// store, ways and clock.
/// Threading: thread-safe.
/// Blocking: Enqueue never waits. Stop waits for the calls in progress.
class Peer {
 public:
  /// How results reach a peer: by message into its ring, or written straight into its memory.
  /// Borrowed.
  struct Ways {
    node::Outbox& outbox;
    values::ValuePeers& values;
  };
  enum class What {
    kRecord,
    kUrgentRecord,  ///< Sent before the other records, because somebody waits for the answer.
    kResult,
    kUrgentResult,  ///< Sent before the other results, because somebody waits for the copy.
  };
  /// Called when the peer cannot be asked about a record, or will never have a result, on a thread
  /// of the peer. A result that was written into the peer's ring or memory counts as sent; whether
  /// the peer stored it shows when the peer sends its record.
  using Failed = std::function<void(const base::Uid&)>;
  /// Called with what the peer answered about records whose end is proposed, on a thread of the
  /// peer.
  using Answered = std::function<void(std::vector<v1::JobRecord>)>;
  struct Events {
    Failed failed;
    Answered answered;
  };

  /// `self` is the node id of this database.
  Peer(const node::ClusterView& view, std::string self, PeerOptions options, const JobStore& store,
       Ways ways, Events events, base::Clock& clock);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Stops sending for good. Idempotent. Call it from one thread at a time.
  void Stop();
  [[nodiscard]] const std::string& node_id() const { return options_.node_id; }
  void Enqueue(const base::Uid& uid, What what);
  /// Returns whether the peer is expected to answer: it is in the routing, and it took what it was
  /// last sent.
  [[nodiscard]] bool Answers() const;
  /// Returns whether the peer answers and is expected to take results in time.
  [[nodiscard]] bool TakesResults() const;
  /// Expects no result to be taken in time by the peer's present incarnation for a while. Call it
  /// when the peer was sent a result but did not confirm it.
  void Distrust();
  /// Returns whether the result is being sent, or waits for its turn while the peer answers.
  [[nodiscard]] bool IsSendingResult(const base::Uid& uid) const;
  /// Returns whether nothing waits and nothing is being sent.
  [[nodiscard]] bool IsIdle() const;
  [[nodiscard]] PeerStats stats() const;

 private:
  struct Queue {
    SendQueue waiting;
    std::unordered_set<base::Uid> sending;  ///< The queue's thread took them and is sending them.
  };
  enum class Sent { kYes, kTryAgain, kNever };

  Queue& QueueOf(What what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return what == What::kRecord || what == What::kUrgentRecord ? records_ : results_;
  }
  void Run(What what, std::size_t count, const std::stop_token& stop,
           const std::function<std::vector<base::Uid>(const v1::Endpoint&,
                                                      const std::vector<base::Uid>&)>& send);
  [[nodiscard]] std::optional<v1::Endpoint> Endpoint() const;
  std::vector<base::Uid> SendRecords(const v1::Endpoint& endpoint,
                                     const std::vector<base::Uid>& uids);
  std::vector<base::Uid> SendResults(const v1::Endpoint& endpoint,
                                     const std::vector<base::Uid>& uids);
  Sent SendResult(const v1::Endpoint& endpoint, const base::Uid& uid);
  absl::Status Send(const v1::Endpoint& endpoint, const message::Message& message);
  absl::Status SendByMessage(const message::Message& message);
  /// What an attempt to send says about the peer.
  enum class Sign {
    kTook,
    kSlow,     ///< It did not answer in time.
    kRefused,  ///< It said no, or nobody is there.
  };
  void Note(const v1::Endpoint& endpoint, Sign sign);

  const node::ClusterView& view_;
  const std::string self_;
  const PeerOptions options_;
  const JobStore& store_;
  const Ways ways_;
  const Events events_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  Queue records_ ABSL_GUARDED_BY(mutex_);
  Queue results_ ABSL_GUARDED_BY(mutex_);
  PeerStats stats_ ABSL_GUARDED_BY(mutex_);
  // The incarnation that did not take what it was last sent; 0: none.
  std::uint64_t silent_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  int slow_in_a_row_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t distrusted_incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  base::MonotonicTime distrusted_until_ ABSL_GUARDED_BY(mutex_){};
  // Used by the records thread only.
  std::string stub_address_;
  std::unique_ptr<v1::DatabaseService::Stub> stub_;
  std::jthread record_thread_, result_thread_;
};

}  // namespace onepiece::database
