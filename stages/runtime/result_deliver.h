// ResultDeliver: hands finished work to the next hop on its own thread, so that a worker computes
// the next job while the last one travels (docs/architecture.md, "Life of a job", 4).
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/runtime/work_item.h"

namespace onepiece::runtime {

/// A bounded queue in front of one thread.
///
/// Threading: thread-safe.
class ResultDeliver {
 public:
  /// Sends one finished item and settles its fate: next hop, database, or a failed job. Called on
  /// the thread. Returns the item when nobody took it yet. It is then retried behind the others, so
  /// that a job that has nowhere to go does not hold up the rest.
  using Deliver = std::function<std::optional<FinishedWork>(FinishedWork)>;

  ResultDeliver(std::size_t max_queued, Deliver deliver, base::Clock& clock);
  ~ResultDeliver();  ///< Close().
  ResultDeliver(const ResultDeliver&) = delete;
  ResultDeliver& operator=(const ResultDeliver&) = delete;

  /// Queues an item. It waits for room, which is the backpressure on the worker. Never drops.
  void Submit(FinishedWork work);
  /// Queues an item without waiting. The caller has held the item until now, so the instance does
  /// not hold more than before. Never drops.
  void Add(FinishedWork work);
  /// Delivers what is queued, then ends the thread. Nothing may be submitted afterwards.
  /// Idempotent. Call it from one thread.
  void Close();
  /// Returns how many items are queued, being delivered, or waiting for room.
  [[nodiscard]] std::size_t held() const;

 private:
  void Main(const std::stop_token& stop);

  const std::size_t max_queued_;
  const Deliver deliver_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<FinishedWork> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

}  // namespace onepiece::runtime
