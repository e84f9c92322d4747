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

/// A bounded queue in front of one thread. Thread-safe.
class ResultDeliver {
 public:
  /// Sends one finished item and settles its fate (next hop, database, or a failed job); called on
  /// the thread. Returns the item when nobody took it yet: it is tried again behind the others, so
  /// that one job that has nowhere to go does not hold the rest up.
  using Deliver = std::function<std::optional<FinishedWork>(FinishedWork)>;

  ResultDeliver(std::size_t max_queued, Deliver deliver, base::Clock& clock);
  /// Close().
  ~ResultDeliver();
  ResultDeliver(const ResultDeliver&) = delete;
  ResultDeliver& operator=(const ResultDeliver&) = delete;

  /// Queues an item; waits for room, which is the backpressure on the worker. Never drops.
  void Submit(FinishedWork work);
  /// Queues an item without waiting: one that the caller has held till now, so that no more is held
  /// than before. Never drops.
  void Add(FinishedWork work);
  /// Delivers what is queued, then ends the thread. Nothing may be submitted from then on.
  /// Idempotent; from one thread.
  void Close();
  /// Items that are queued, being delivered, or waiting for room.
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
