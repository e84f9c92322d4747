// How long jobs take as their clients see it: each is watched from its acceptance to its end.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "tests/chaos/ledger.h"
#include "tests/chaos/ledger_load.h"

namespace onepiece::ledger {

/// Of the jobs that SUCCEEDED. Seconds.
struct Latency {
  std::int64_t jobs = 0;
  double p50 = 0, p99 = 0;
};

/// Threading: may be used from any thread.
class Stopwatch {
 public:
  /// The job's end was told `took` after it was sent.
  void Add(base::MonotonicTime sent, base::Duration took);
  /// Of the jobs that were sent from `from` on and before `until`.
  [[nodiscard]] Latency Of(base::MonotonicTime from, base::MonotonicTime until) const;

 private:
  struct Sample {
    base::MonotonicTime sent;
    base::Duration took;
  };
  mutable base::Mutex mutex_;
  std::vector<Sample> samples_ ABSL_GUARDED_BY(mutex_);
};

/// Watches accepted jobs, and writes all that it hears into the ledger. A job that ended otherwise
/// than SUCCEEDED has no latency.
///
/// Ownership: borrows all that it is given, and owns its threads.
///
/// Threading: may be used from any thread.
class EndWatch {
 public:
  EndWatch(Ledger& ledger, Proxies& proxies, Stopwatch& stopwatch);
  /// Drops the jobs that are under way.
  ~EndWatch();
  EndWatch(const EndWatch&) = delete;
  EndWatch& operator=(const EndWatch&) = delete;

  /// Watches a job. With too many under way, the job goes unwatched and is counted.
  void Watch(const std::string& uid, base::MonotonicTime sent);
  [[nodiscard]] std::int64_t unwatched() const;

 private:
  struct Job {
    std::string uid;
    base::MonotonicTime sent;
  };
  void Run(const std::stop_token& stop);
  void WatchOne(const Job& job, const std::stop_token& stop);

  Ledger& ledger_;
  Proxies& proxies_;
  Stopwatch& stopwatch_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<Job> waiting_ ABSL_GUARDED_BY(mutex_);
  std::int64_t unwatched_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::jthread> threads_;
};

}  // namespace onepiece::ledger
