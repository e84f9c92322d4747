#include "stages/runtime/result_deliver.h"

#include <utility>

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
  std::unique_lock lock(mutex_);
  ++held_;
  clock_.WaitUntil(changed_, lock, thread_.get_stop_token(), clock_.Now() + kForever,
                   [this] { return queue_.size() < max_queued_; });
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

void ResultDeliver::Add(FinishedWork work) {
  const std::lock_guard lock(mutex_);
  ++held_;
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

std::size_t ResultDeliver::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

void ResultDeliver::Main(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    clock_.WaitUntil(changed_, lock, stop, clock_.Now() + kForever,
                     [this] { return !queue_.empty(); });
    if (queue_.empty()) return;
    FinishedWork work = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    lock.unlock();
    auto again = deliver_(std::move(work));
    lock.lock();
    if (again) {
      queue_.push_back(*std::move(again));
    } else {
      --held_;
    }
  }
}

}  // namespace onepiece::runtime
