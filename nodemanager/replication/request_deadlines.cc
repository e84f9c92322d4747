#include "nodemanager/replication/request_deadlines.h"

#include <vector>

#include "nodemanager/replication/boot_clock.h"
#include "nodemanager/replication/log_errors.h"

namespace onepiece::nodemanager {

RequestDeadlines::RequestDeadlines(base::Duration limit)
    : limit_(limit), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

RequestDeadlines::~RequestDeadlines() {
  thread_.request_stop();
  thread_.join();
}

void RequestDeadlines::ForgetAnswered() {
  while (!waiting_.empty()) {
    const std::shared_ptr<LogRequest> request = waiting_.front().second.lock();
    if (request != nullptr && !request->finished()) return;
    waiting_.pop_front();
  }
}

void RequestDeadlines::Add(const std::shared_ptr<LogRequest>& request) {
  const base::MutexLock lock(mutex_);
  ForgetAnswered();
  // A thread that sleeps until a deadline wakes in time for this one, which is later.
  if (rests_) added_.NotifyOne();
  rests_ = false;
  waiting_.emplace_back(BootNow() + limit_, request);
}

std::size_t RequestDeadlines::size() const {
  const base::MutexLock lock(mutex_);
  return waiting_.size();
}

void RequestDeadlines::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::vector<std::shared_ptr<LogRequest>> late;
    {
      base::MutexLock lock(mutex_);
      ForgetAnswered();
      if (waiting_.empty()) {
        rests_ = true;
        added_.Wait(lock, stop,
                    [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !waiting_.empty(); });
      }
      // Requests come and are answered meanwhile, and cost no wake-up.
      const paxos::Time due = waiting_.empty() ? BootNow() : waiting_.front().first;
      added_.WaitFor(lock, stop, due - BootNow() + kSlack, [] { return false; });
      const paxos::Time now = BootNow();
      for (; !waiting_.empty() && waiting_.front().first <= now; waiting_.pop_front()) {
        if (auto request = waiting_.front().second.lock()) late.push_back(std::move(request));
      }
    }
    for (const auto& request : late) request->Finish(NotInTime());
  }
}

}  // namespace onepiece::nodemanager
