#include "stages/instance/job_reporter.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {
namespace {

constexpr auto kMinProgressInterval = std::chrono::milliseconds(100);
constexpr auto kRetryPause = std::chrono::milliseconds(200);
// How long the last attempts may take when the reporter ends.
constexpr auto kFlushLimit = std::chrono::seconds(3);
constexpr auto kIdleWait = std::chrono::hours(24);

// Every other answer may be another one next time: a database may restart, take its records over
// from its peer, or have room again.
bool IsDefinite(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsFailedPrecondition(status);
}

bool IsEnd(const v1::UpdateJobRequest& request) {
  return request.has_failed() || request.cancelled();
}

// Adds `newer` to `older`, which waits. A request has room for one timing.
bool Join(v1::UpdateJobRequest newer, v1::UpdateJobRequest& older) {
  if (older.has_timing() && newer.has_timing()) return false;
  // The first end of a job wins at the database, and so it does here.
  if (IsEnd(older)) {
    newer.clear_failed();
    newer.clear_cancelled();
    newer.clear_run();
  }
  for (v1::WorkHolder& holder : *newer.mutable_placed()) {
    // The database keeps the holder of the largest run and attempt for each way that a job came.
    auto& placed = *older.mutable_placed();
    const auto same = std::ranges::find_if(placed, [&](const v1::WorkHolder& known) {
      return known.stage() == holder.stage() && known.from() == holder.from();
    });
    if (same == placed.end()) {
      placed.Add(std::move(holder));
    } else if (std::pair(same->run(), same->attempt()) <
               std::pair(holder.run(), holder.attempt())) {
      *same = std::move(holder);
    }
  }
  newer.clear_placed();
  older.MergeFrom(newer);
  return true;
}

}  // namespace

JobReporter::JobReporter(Update update, Ended ended, base::Clock& clock)
    : update_(std::move(update)),
      ended_(std::move(ended)),
      clock_(clock),
      thread_([this](const std::stop_token& stop) { Main(stop); }) {}

JobReporter::~JobReporter() { Close(); }

void JobReporter::ReportProgress(const base::Uid& uid, v1::JobProgress progress) {
  const base::MutexLock lock(mutex_);
  auto& queue = pending_[uid];
  if (queue.empty() || !queue.back().progress_only) {
    // Progress is dropped without a word: the next step brings a newer one.
    if (pending_count_ >= kMaxPending) return;
    queue.push_back({.request = {}, .progress_only = true});
    ++pending_count_;
  }
  *queue.back().request.mutable_progress() = std::move(progress);
  changed_.NotifyAll();
}

void JobReporter::Report(const base::Uid& uid, v1::UpdateJobRequest request) {
  const base::MutexLock lock(mutex_);
  auto& queue = pending_[uid];
  if (!queue.empty() && !queue.back().progress_only && Join(request, queue.back().request)) return;
  queue.push_back({.request = std::move(request)});
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
  // A client waits for the end of a job. What else is missing is found out by its holder's death.
  for (const bool ends : {true, false}) {
    for (auto& [uid, queue] : last) {
      const bool ended =
          std::ranges::any_of(queue, [](const Pending& pending) { return IsEnd(pending.request); });
      if (ended != ends) continue;
      for (Pending& pending : queue) {
        if (pending.progress_only) continue;
        if (clock_.Now() < until && Send(uid, pending) == Answer::kDone) continue;
        spdlog::warn("uid={} update of the job record was not sent: {}", uid.ToString(),
                     pending.request.ShortDebugString());
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
    while (!queue.empty() && Send(uid, queue.front()) == Answer::kDone) {
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

JobReporter::Answer JobReporter::Send(const base::Uid& uid, Pending& pending) {
  v1::UpdateJobRequest request = pending.request;
  request.set_uid(uid.ToString());
  const auto record = update_(request);
  if (record.ok()) {
    const auto state = record->job().state();
    if (state != v1::Job::QUEUED && state != v1::Job::RUNNING && state != v1::Job::SUCCEEDED)
      ended_(uid);
    return Answer::kDone;
  }
  const bool again = !IsDefinite(record.status()) && !pending.progress_only;
  if (!again || !pending.refused) {
    spdlog::warn("uid={} update of the job record failed{}: {}", uid.ToString(),
                 again ? ", and is repeated" : "", base::Message(record.status()));
  }
  pending.refused = true;
  return again ? Answer::kAgain : Answer::kDone;
}

}  // namespace onepiece::instance
