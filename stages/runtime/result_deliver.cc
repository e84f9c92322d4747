#include "stages/runtime/result_deliver.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::runtime {
namespace {

constexpr auto kForever = std::chrono::hours(24 * 365);  // Ends by notification or stop.

}  // namespace

ResultDeliver::ResultDeliver(std::size_t max_queued, DestinationOf destination_of, Deliver deliver,
                             base::Clock& clock)
    : max_queued_(max_queued),
      destination_of_(std::move(destination_of)),
      deliver_(std::move(deliver)),
      clock_(clock) {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Main(); });
}

ResultDeliver::~ResultDeliver() { Close(); }

void ResultDeliver::Close() {
  stop_.request_stop();
  threads_.clear();
}

void ResultDeliver::Submit(FinishedWork work) {
  const std::string name = destination_of_(work);
  base::MutexLock lock(mutex_);
  ++held_;
  clock_.WaitUntil(changed_, lock, stop_.get_token(), clock_.Now() + kForever,
                   [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                     const auto lane = lanes_.find(name);
                     return lane == lanes_.end() || lane->second.queue.size() < max_queued_;
                   });
  lanes_[name].queue.push_back(std::move(work));
  changed_.NotifyAll();
}

void ResultDeliver::Add(FinishedWork work) {
  const std::string name = destination_of_(work);
  const base::MutexLock lock(mutex_);
  ++held_;
  lanes_[name].queue.push_back(std::move(work));
  changed_.NotifyAll();
}

std::size_t ResultDeliver::held() const {
  const base::MutexLock lock(mutex_);
  return held_;
}

std::pair<const std::string, ResultDeliver::Lane>* ResultDeliver::Next() {
  const auto waits = [](const auto& lane) {
    return !lane.second.served && !lane.second.queue.empty();
  };
  const auto after = lanes_.upper_bound(last_);
  auto found = std::find_if(after, lanes_.end(), waits);
  if (found == lanes_.end()) found = std::find_if(lanes_.begin(), after, waits);
  return found == lanes_.end() || !waits(*found) ? nullptr : &*found;
}

void ResultDeliver::Main() {
  base::MutexLock lock(mutex_);
  while (true) {
    clock_.WaitUntil(changed_, lock, stop_.get_token(), clock_.Now() + kForever,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Next() != nullptr; });
    auto* const next = Next();
    // After a stop the queues are emptied first, so that Close loses nothing. A lane that is served
    // now is left to its thread.
    if (next == nullptr) return;
    last_ = next->first;
    const std::string name = last_;
    Lane& lane = next->second;  // Stays, because it is served.
    lane.served = true;
    FinishedWork work = std::move(lane.queue.front());
    lane.queue.pop_front();
    changed_.NotifyAll();
    lock.Unlock();
    auto again = deliver_(std::move(work));
    const std::string where = again ? destination_of_(*again) : "";
    lock.Lock();
    lane.served = false;
    if (again) {
      // `held_` still counts the item, so a drain that looks meanwhile does not take the instance
      // for empty.
      lanes_[where].queue.push_back(*std::move(again));
    } else {
      --held_;
    }
    if (lane.queue.empty()) lanes_.erase(name);
    changed_.NotifyAll();
  }
}

}  // namespace onepiece::runtime
