// The threads that read results out of the databases' memory: that blocks, and may not run on
// gRPC's.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::proxy {

/// Threads that begin when they are first needed.
///
/// Threading: thread-safe.
/// Blocking: the destructor waits for the work that has begun, and drops the rest.
class ReadThreads {
 public:
  explicit ReadThreads(std::size_t limit) : limit_(limit) {}
  ~ReadThreads();
  ReadThreads(const ReadThreads&) = delete;
  ReadThreads& operator=(const ReadThreads&) = delete;

  /// Has a thread do the work. False when all are busy: nothing ever waits for one.
  bool Run(std::function<void()> work);

 private:
  void Serve();

  const std::size_t limit_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::size_t busy_ ABSL_GUARDED_BY(mutex_) = 0;  // Work that waits for its thread, or is done.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::proxy
