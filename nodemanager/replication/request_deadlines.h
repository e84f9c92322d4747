// Ends the wait of requests that nobody waits for on a thread of its own. Private to this folder.
#pragma once

#include <deque>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/replication/log_queue.h"

namespace onepiece::nodemanager {

/// Answers requests with DEADLINE_EXCEEDED (OUTCOME_UNKNOWN) that are not answered within the
/// limit, even while a disk that hangs keeps the log's threads from doing so.
///
/// Ownership: owns its thread. It keeps no answered request alive.
/// Threading: thread-safe.
/// Bounds: it remembers the requests that are not answered, and at most those of one limit.
class RequestDeadlines {
 public:
  /// Requests that are answered too late are found at most kSlack late.
  static constexpr base::Duration kSlack = std::chrono::milliseconds(20);

  explicit RequestDeadlines(base::Duration limit);
  ~RequestDeadlines();
  RequestDeadlines(const RequestDeadlines&) = delete;
  RequestDeadlines& operator=(const RequestDeadlines&) = delete;

  void Add(const std::shared_ptr<LogRequest>& request);
  /// How many requests it remembers.
  [[nodiscard]] std::size_t size() const;

 private:
  using Waiting = std::pair<base::MonotonicTime, std::weak_ptr<LogRequest>>;
  void Run(const std::stop_token& stop);
  void ForgetAnswered() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const base::Duration limit_;
  mutable base::Mutex mutex_;
  base::CondVar added_;
  // All have the same limit, so they are in the order of their deadlines.
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool rests_ ABSL_GUARDED_BY(mutex_) = false;  // The thread sleeps until it is notified.
  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
