// ResultDeliver: hands finished work to the next hop on threads of its own, so that a worker
// computes the next job while the last one travels (docs/architecture.md, "Life of a job", 4).
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/runtime/work_item.h"

namespace onepiece::runtime {

/// A bounded queue for each destination, and a few threads that serve them. One destination has one
/// thread at a time, so one that takes nothing holds up nobody else while a thread is free.
///
/// Threading: thread-safe.
class ResultDeliver {
 public:
  /// Names where an item goes. Items of one name wait for each other. It is called without a lock,
  /// and again whenever an item is queued again.
  using DestinationOf = std::function<std::string(const FinishedWork&)>;
  /// Sends one finished item and settles its fate: next hop, database, or a failed job. Called on
  /// one of the threads. Returns the item when nobody took it yet. It is then retried behind the
  /// others of its destination, so that a job that has nowhere to go does not hold up the rest.
  using Deliver = std::function<std::optional<FinishedWork>(FinishedWork)>;
  /// How many destinations may take nothing before others wait for them. The others then get their
  /// turns between two tries.
  static constexpr int kThreads = 8;

  /// At most `max_queued` submitted items wait for each destination.
  ResultDeliver(std::size_t max_queued, DestinationOf destination_of, Deliver deliver,
                base::Clock& clock);
  ~ResultDeliver();  ///< Close().
  ResultDeliver(const ResultDeliver&) = delete;
  ResultDeliver& operator=(const ResultDeliver&) = delete;

  /// Queues an item. It waits for room at the item's destination, which is the backpressure on the
  /// worker. Never drops.
  void Submit(FinishedWork work);
  /// Queues an item without waiting. The caller has held the item until now, so the instance does
  /// not hold more than before. Never drops.
  void Add(FinishedWork work);
  /// Delivers what is queued, then ends the threads. Nothing may be submitted afterwards.
  /// Idempotent. Call it from one thread.
  void Close();
  /// Returns how many items are queued, being delivered, or waiting for room.
  [[nodiscard]] std::size_t held() const;

 private:
  struct Lane {
    std::deque<FinishedWork> queue;
    bool served = false;  ///< A thread delivers an item of it.
  };

  void Main();
  // Returns the next lane that has an item and no thread, in turn; nullptr when there is none.
  std::pair<const std::string, Lane>* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::size_t max_queued_;
  const DestinationOf destination_of_;
  const Deliver deliver_;
  base::Clock& clock_;
  const std::stop_source stop_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  // Only lanes with an item, queued or being delivered, so there are no more of them than items.
  std::map<std::string, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
  std::string last_ ABSL_GUARDED_BY(mutex_);  // The lane that was served last.
  std::size_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace onepiece::runtime
