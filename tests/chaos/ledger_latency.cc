#include "tests/chaos/ledger_latency.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cluster/client/client.h"

namespace onepiece::ledger {
namespace {

using std::chrono::seconds;

// So many jobs can be under way at once without waiting for their turn. At 5 jobs a second that is
// a latency of 9 s.
constexpr int kThreads = 48;
constexpr std::size_t kMaxWaiting = 1000;
constexpr auto kOneStream = seconds(2);    // Of one proxy, which may have been stopped.
constexpr auto kForgotten = seconds(120);  // The deadline of a job is half of that.
constexpr auto kNextStream = std::chrono::milliseconds(50);

}  // namespace

void Stopwatch::Add(base::MonotonicTime sent, base::Duration took) {
  const base::MutexLock lock(mutex_);
  samples_.push_back({sent, took});
}

Latency Stopwatch::Of(base::MonotonicTime from, base::MonotonicTime until) const {
  std::vector<double> took;
  {
    const base::MutexLock lock(mutex_);
    for (const Sample& sample : samples_) {
      if (sample.sent >= from && sample.sent < until)
        took.push_back(std::chrono::duration<double>(sample.took).count());
    }
  }
  std::ranges::sort(took);
  const auto quantile = [&took](double share) {  // The smallest that so many do not exceed.
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(took.size())));
    return took.empty() ? 0 : took[std::max<std::size_t>(rank, 1) - 1];
  };
  return {static_cast<std::int64_t>(took.size()), quantile(0.5), quantile(0.99)};
}

EndWatch::EndWatch(Ledger& ledger, Proxies& proxies, Stopwatch& stopwatch)
    : ledger_(ledger), proxies_(proxies), stopwatch_(stopwatch) {
  for (int i = 0; i < kThreads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { Run(stop); });
}

EndWatch::~EndWatch() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void EndWatch::Watch(const std::string& uid, base::MonotonicTime sent) {
  {
    const base::MutexLock lock(mutex_);
    if (waiting_.size() >= kMaxWaiting) {
      ++unwatched_;
      return;
    }
    waiting_.push_back({uid, sent});
  }
  changed_.NotifyOne();
}

std::int64_t EndWatch::unwatched() const {
  const base::MutexLock lock(mutex_);
  return unwatched_;
}

void EndWatch::Run(const std::stop_token& stop) {
  for (;;) {
    Job job;
    {
      base::MutexLock lock(mutex_);
      const bool work = changed_.Wait(
          lock, stop, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !waiting_.empty(); });
      if (!work || stop.stop_requested()) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    WatchOne(job, stop);
  }
}

void EndWatch::WatchOne(const Job& job, const std::stop_token& stop) {
  const auto give_up = Now() + base::Scaled(kForgotten);
  for (std::size_t turn = std::hash<std::string>()(job.uid); Now() < give_up; ++turn) {
    if (stop.stop_requested()) return;
    const std::vector<ProxyStub> proxies = proxies_.List();
    if (!proxies.empty()) {
      const ProxyStub& proxy = proxies[turn % proxies.size()];
      const v1::Job::State state = WatchProxy(proxy, job.uid, kOneStream, ledger_);
      if (state == v1::Job::SUCCEEDED) stopwatch_.Add(job.sent, Now() - job.sent);
      if (client::IsTerminal(state)) return;
    }
    base::SystemClock().Pause(stop, kNextStream);
  }
}

}  // namespace onepiece::ledger
