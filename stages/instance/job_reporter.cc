#include "stages/instance/job_reporter.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {
namespace {

constexpr auto kMinProgressInterval = std::chrono::milliseconds(100);
constexpr auto kRetryPause = std::chrono::milliseconds(200);
constexpr auto kGiveUpAfter = std::chrono::seconds(30);
// How long the last attempts may take when the reporter ends.
constexpr auto kFlushLimit = std::chrono::seconds(3);
constexpr auto kIdleWait = std::chrono::hours(24);

bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

JobReporter::JobReporter(Update update, Ended ended, base::Clock& clock)
    : update_(std::move(update)),
      ended_(std::move(ended)),
      clock_(clock),
      thread_([this](const std::stop_token& stop) { Main(stop); }) {}

JobReporter::~JobReporter() = default;

void JobReporter::ReportProgress(const base::Uid& uid, v1::JobProgress progress) {
  const base::MutexLock lock(mutex_);
  auto& queue = pending_[uid];
  if (queue.empty() || !queue.back().progress_only) {
    // Progress is dropped without a word: the next step brings a newer one.
    if (pending_count_ >= kMaxPending) return;
    queue.push_back({.request = {}, .queued = clock_.Now(), .progress_only = true});
    ++pending_count_;
  }
  *queue.back().request.mutable_progress() = std::move(progress);
  changed_.NotifyAll();
}

void JobReporter::Report(const base::Uid& uid, v1::UpdateJobRequest request) {
  const base::MutexLock lock(mutex_);
  if (pending_count_ >= kMaxPending) {
    spdlog::warn("uid={} update of the job record dropped: too many are waiting", uid.ToString());
    return;
  }
  auto& queue = pending_[uid];
  queue.push_back({.request = std::move(request), .queued = clock_.Now(), .progress_only = false});
  ++pending_count_;
  changed_.NotifyAll();
}

std::size_t JobReporter::pending() const {
  const base::MutexLock lock(mutex_);
  return pending_count_;
}

void JobReporter::Main(const std::stop_token& stop) {
  while (true) {
    base::MutexLock lock(mutex_);
    clock_.WaitUntil(changed_, lock, stop, clock_.Now() + kIdleWait,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_count_ > 0; });
    if (pending_count_ == 0 && stop.stop_requested()) return;
    lock.Unlock();
    if (stop.stop_requested()) return Flush();
    const bool all_sent = SendRound();
    // The pause coalesces progress: steps that come meanwhile replace each other.
    clock_.Pause(stop, all_sent ? kMinProgressInterval : kRetryPause);
  }
}

void JobReporter::Flush() {
  const auto until = clock_.Now() + base::Scaled(kFlushLimit);
  std::map<base::Uid, std::deque<Pending>> last;
  {
    const base::MutexLock lock(mutex_);
    last.swap(pending_);
  }
  for (const auto& [uid, queue] : last) {
    for (const auto& pending : queue) {
      if (pending.progress_only) continue;
      if (clock_.Now() < until) {
        Send(uid, pending);
      } else {
        spdlog::warn("uid={} update of the job record was not sent", uid.ToString());
      }
    }
  }
}

bool JobReporter::SendRound() {
  std::map<base::Uid, std::deque<Pending>> round;
  {
    const base::MutexLock lock(mutex_);
    round.swap(pending_);
  }
  bool all_sent = true;
  for (auto& [uid, queue] : round) {
    std::size_t sent = 0;
    // The first update that must be retried holds up those behind it, which keeps the order of the
    // job's updates. Other jobs go on.
    while (!queue.empty() && Send(uid, queue.front())) {
      queue.pop_front();
      ++sent;
    }
    const base::MutexLock lock(mutex_);
    pending_count_ -= sent;
    if (queue.empty()) continue;
    all_sent = false;
    // Updates that came meanwhile go behind those that must be retried.
    auto& newer = pending_[uid];
    newer.insert(newer.begin(), std::make_move_iterator(queue.begin()),
                 std::make_move_iterator(queue.end()));
  }
  return all_sent;
}

bool JobReporter::Send(const base::Uid& uid, const Pending& pending) {
  v1::UpdateJobRequest request = pending.request;
  request.set_uid(uid.ToString());
  const auto record = update_(request);
  if (record.ok()) {
    const auto state = record->job().state();
    if (state != v1::Job::QUEUED && state != v1::Job::RUNNING && state != v1::Job::SUCCEEDED)
      ended_(uid);
    return true;
  }
  const bool again = IsRetryable(record.status()) && !pending.progress_only &&
                     clock_.Now() - pending.queued < base::Scaled(kGiveUpAfter);
  if (!again) {
    spdlog::warn("uid={} update of the job record failed: {}", uid.ToString(),
                 base::Message(record.status()));
  }
  return !again;
}

}  // namespace onepiece::instance
