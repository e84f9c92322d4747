#include "nodemanager/service/follow_ups.h"

#include <utility>

namespace onepiece::nodemanager {

FollowUps::FollowUps(Follow follow)
    : follow_(std::move(follow)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void FollowUps::Add(bool changed, Answer answer) {
  bool first = false;
  {
    const base::MutexLock lock(mutex_);
    if (!stopped_) {
      first = batch_.answers.empty();
      batch_.answers.push_back(std::move(answer));
      batch_.changed = batch_.changed || changed;
      answer = nullptr;
    }
  }
  // The log may answer what it still had after everybody else has ended.
  if (answer) return answer();
  if (first) added_.NotifyOne();
}

void FollowUps::Stop() {
  {
    const base::MutexLock lock(mutex_);
    stopped_ = true;
  }
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

FollowUps::Batch FollowUps::Take(const std::stop_token& stop) {
  base::MutexLock lock(mutex_);
  added_.Wait(lock, stop,
              [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !batch_.answers.empty(); });
  return std::exchange(batch_, {});
}

void FollowUps::Run(const std::stop_token& stop) {
  for (Batch batch = Take(stop); !batch.answers.empty(); batch = Take(stop)) {
    follow_(batch.changed);
    for (const Answer& answer : batch.answers) answer();
  }
}

}  // namespace onepiece::nodemanager
