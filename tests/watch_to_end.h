// Waits for the end of a watch, for tests that look at its states one by one.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/node/job_records.h"

namespace onepiece::testing {

/// Returns what the watch ended with. `sink` returns false to cancel it.
inline absl::Status WatchToEnd(node::JobRecords& records, const base::Uid& uid,
                               const std::function<bool(const v1::Job&)>& sink) {
  struct Watcher final : node::JobWatcher {
    explicit Watcher(const std::function<bool(const v1::Job&)>& its_sink) : sink(its_sink) {}
    void OnState(const v1::Job& job) override {
      if (sink(job)) return;
      const base::MutexLock lock(mutex);
      enough = true;
      changed.NotifyAll();
    }
    void OnEnd(const absl::Status& result) override {
      const base::MutexLock lock(mutex);
      status = result;
      ended = true;
      changed.NotifyAll();
    }
    const std::function<bool(const v1::Job&)>& sink;
    base::Mutex mutex;
    base::CondVar changed;
    bool enough ABSL_GUARDED_BY(mutex) = false, ended ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  const auto watcher = std::make_shared<Watcher>(sink);
  const auto watch = records.Watch(uid, watcher);
  base::MutexLock lock(watcher->mutex);
  watcher->changed.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(watcher->mutex) {
    return watcher->enough || watcher->ended;
  });
  if (!watcher->ended) {
    lock.Unlock();
    watch->Cancel();
    lock.Lock();
  }
  watcher->changed.Wait(
      lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(watcher->mutex) { return watcher->ended; });
  return watcher->status;
}

}  // namespace onepiece::testing
