// Keeps one peer of every job up to date: records by ReplicateJobs, result bytes through the peer's
// ring.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/database/job_store.h"
#include "cluster/node/outbox.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::database {

struct ReplicatorOptions {
  std::string node_id;  ///< Ours: never a peer.
  std::function<std::shared_ptr<const node::Routing>()> routing;
  base::Duration call_timeout = std::chrono::seconds(2);
  base::Duration deliver_timeout = std::chrono::seconds(5);
  base::Duration retry_pause = std::chrono::milliseconds(200);
};

struct ReplicatorStats {
  std::uint64_t records_sent = 0, results_sent = 0, failures = 0, dropped = 0;
  std::int64_t records_waiting = 0, results_waiting = 0;
};

/// The queues hold uids, not data: a job that changes ten times while its peer is slow or away is
/// sent once, as it stands then. Every record goes whole, so that a peer that came back empty heals
/// as jobs move.
///
/// Ownership  Owns its two threads and its connections. Borrows the store and the outbox from
/// Start() to Stop(). Threading  Thread-safe. Blocking   Enqueue never waits. Stop waits for the
/// call in progress. Invariant  At most kMaxWaiting uids wait in each queue; the oldest ones beyond
/// are dropped and counted.
class Replicator {
 public:
  static constexpr std::size_t kMaxWaiting = 100'000;

  explicit Replicator(ReplicatorOptions options, base::Clock& clock = base::SystemClock());
  ~Replicator();
  Replicator(const Replicator&) = delete;
  Replicator& operator=(const Replicator&) = delete;

  /// The store's observer.
  void Enqueue(const base::Uid& uid, Change change);
  void Start(const JobStore& store, node::Outbox& outbox);
  void Stop();
  /// Waits until nothing is queued or in flight; false when `deadline` passes before.
  bool WaitIdle(base::MonotonicTime deadline);
  [[nodiscard]] ReplicatorStats stats() const;

 private:
  /// Uids in order of arrival, each once.
  struct Queue {
    std::deque<base::Uid> order;
    std::set<base::Uid> waiting;
    bool busy = false;  ///< Its thread is sending what it took.

    bool Add(const base::Uid& uid);
    std::vector<base::Uid> Take(std::size_t count);
  };
  enum class Sent { kYes, kTryAgain, kNever };

  std::optional<v1::Endpoint> PeerFor(const base::Uid& uid) const;
  std::vector<base::Uid> TakeOrWait(Queue& queue, std::size_t count, const std::stop_token& stop);
  void Finish(Queue& queue, const std::vector<base::Uid>& again, const std::stop_token& stop);
  void SendRecords(const std::stop_token& stop);
  std::vector<base::Uid> SendBatch(const v1::Endpoint& peer, const std::vector<base::Uid>& uids);
  void SendResults(const std::stop_token& stop);
  Sent SendResult(const base::Uid& uid);
  std::shared_ptr<v1::DatabaseService::Stub> StubFor(const std::string& address);

  const ReplicatorOptions options_;
  base::Clock& clock_;
  const JobStore* store_ = nullptr;  // Set by Start.
  node::Outbox* outbox_ = nullptr;   // Set by Start.
  mutable std::mutex mutex_;         // Guards the queues and the stats.
  std::condition_variable_any changed_;
  Queue records_, results_;
  ReplicatorStats stats_;
  std::map<std::string, std::shared_ptr<v1::DatabaseService::Stub>> stubs_;  // Records thread only.
  std::jthread record_thread_, result_thread_;
};

}  // namespace onepiece::database
