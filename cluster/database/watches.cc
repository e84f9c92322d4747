#include "cluster/database/watches.h"

#include <utility>

namespace onepiece::database {

Watches::Subscription::~Subscription() {
  // The subscriber is freed outside of the lock, because it may own anything.
  std::shared_ptr<const JobSubscriber> subscriber;
  const base::MutexLock lock(watches_.mutex_);
  const auto job = watches_.jobs_.find(uid_);
  subscriber = std::move(*at_);
  job->second.subscribers.erase(at_);
  if (!job->second.subscribers.empty()) return;
  watches_.jobs_.erase(job);
  watches_.changed_.erase(uid_);
}

void Watches::Start(Read read) {
  read_ = std::move(read);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void Watches::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

std::unique_ptr<Watches::Subscription> Watches::Add(const base::Uid& uid,
                                                    JobSubscriber subscriber) {
  auto shared = std::make_shared<const JobSubscriber>(std::move(subscriber));
  const base::MutexLock lock(mutex_);
  const auto [job, is_new] = jobs_.try_emplace(uid);
  if (is_new) job->second.told = clock_.Now();
  auto& subscribers = job->second.subscribers;
  return std::unique_ptr<Subscription>(
      new Subscription(*this, uid, subscribers.insert(subscribers.end(), std::move(shared))));
}

void Watches::Changed(const base::Uid& uid) {
  const base::MutexLock lock(mutex_);
  if (jobs_.contains(uid) && changed_.insert(uid).second) woken_.NotifyOne();
}

void Watches::Run(const std::stop_token& stop) {
  const base::Duration look = base::Scaled(kRepeat) / 8;
  base::MonotonicTime next_look = clock_.Now() + look;
  while (!stop.stop_requested()) {
    std::unordered_set<base::Uid> changed;
    std::vector<base::Uid> silent;
    {
      base::MutexLock lock(mutex_);
      clock_.WaitUntil(woken_, lock, stop, next_look,
                       [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !changed_.empty(); });
      changed.swap(changed_);
      if (const base::MonotonicTime now = clock_.Now(); now >= next_look) {
        silent = Silent(now);
        next_look = now + look;
      }
    }
    if (stop.stop_requested()) return;
    for (const base::Uid& uid : changed) Tell(uid, /*repeat=*/false);
    for (const base::Uid& uid : silent) Tell(uid, /*repeat=*/true);
  }
}

std::vector<base::Uid> Watches::Silent(base::MonotonicTime now) const {
  std::vector<base::Uid> silent;
  for (const auto& [uid, job] : jobs_) {
    if (now - job.told >= base::Scaled(kRepeat)) silent.push_back(uid);
  }
  return silent;
}

void Watches::Tell(const base::Uid& uid, bool repeat) {
  // The job is read before the subscribers are: whoever subscribes after this reads for himself.
  const absl::StatusOr<JobRevision> now = read_(uid);
  Subscription::Subscribers subscribers;
  {
    const base::MutexLock lock(mutex_);
    const auto job = jobs_.find(uid);
    if (job == jobs_.end()) return;
    job->second.told = clock_.Now();
    subscribers = job->second.subscribers;
  }
  for (const auto& subscriber : subscribers) (*subscriber)(now, repeat);
}

}  // namespace onepiece::database
