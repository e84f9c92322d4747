#include "stages/runtime/result_deliver.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::runtime {
namespace {

constexpr auto kForever = std::chrono::hours(24 * 365);  // Ends by notification or stop.

}  // namespace

ResultDeliver::ResultDeliver(std::size_t max_queued, Deliver deliver, base::Clock& clock)
    : max_queued_(max_queued),
      deliver_(std::move(deliver)),
      clock_(clock),
      thread_([this](const std::stop_token& stop) { Main(stop); }) {}

ResultDeliver::~ResultDeliver() { Close(); }

void ResultDeliver::Close() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void ResultDeliver::Submit(FinishedWork work) {
  base::MutexLock lock(mutex_);
  ++held_;
  clock_.WaitUntil(
      changed_, lock, thread_.get_stop_token(), clock_.Now() + kForever,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return queue_.size() < max_queued_; });
  queue_.push_back(std::move(work));
  changed_.NotifyAll();
}

void ResultDeliver::Add(FinishedWork work) {
  const base::MutexLock lock(mutex_);
  ++held_;
  queue_.push_back(std::move(work));
  changed_.NotifyAll();
}

std::size_t ResultDeliver::held() const {
  const base::MutexLock lock(mutex_);
  return held_;
}

void ResultDeliver::Main(const std::stop_token& stop) {
  base::MutexLock lock(mutex_);
  while (true) {
    clock_.WaitUntil(changed_, lock, stop, clock_.Now() + kForever,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty(); });
    // After a stop the queue is emptied first, so that Close loses nothing.
    if (queue_.empty()) return;
    FinishedWork work = std::move(queue_.front());
    queue_.pop_front();
    changed_.NotifyAll();
    lock.Unlock();
    auto again = deliver_(std::move(work));
    lock.Lock();
    if (again) {
      // `held_` still counts the item, so a drain that looks meanwhile does not take the instance
      // for empty.
      queue_.push_back(*std::move(again));
    } else {
      --held_;
    }
  }
}

}  // namespace onepiece::runtime
