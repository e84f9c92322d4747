#include "cluster/proxy/read_threads.h"

#include <utility>

namespace onepiece::proxy {

ReadThreads::~ReadThreads() {
  std::vector<std::jthread> threads;
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    changed_.NotifyAll();
  }
  // It joins with the lock free.
}

bool ReadThreads::Run(std::function<void()> work) {
  const base::MutexLock lock(mutex_);
  if (stopping_ || busy_ == limit_) return false;
  ++busy_;
  waiting_.push_back(std::move(work));
  if (threads_.size() < busy_) threads_.emplace_back([this] { Serve(); });
  changed_.NotifyAll();
  return true;
}

void ReadThreads::Serve() {
  while (true) {
    std::function<void()> work;
    {
      base::MutexLock lock(mutex_);
      changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !waiting_.empty();
      });
      if (stopping_) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
    work = nullptr;  // What it keeps goes without the lock.
    const base::MutexLock lock(mutex_);
    --busy_;
  }
}

}  // namespace onepiece::proxy
