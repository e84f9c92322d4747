#include "stages/instance/job_reporter.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {
namespace {

constexpr auto kMinProgressInterval = std::chrono::milliseconds(100);
constexpr base::Duration kFirstPause = std::chrono::milliseconds(200);
constexpr base::Duration kLongestPause = std::chrono::seconds(3);
// Before a job whose end is proposed is asked for again; scaled. It bounds how long a computation
// goes on that nobody wants.
constexpr base::Duration kAskPause = std::chrono::seconds(1);
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

auto WorkOf(const v1::WorkHolder& holder) {
  return std::tuple(holder.run(), holder.attempt(), std::string_view(holder.stage()),
                    std::string_view(holder.from()));
}

// Adds `newer` to `older`, which waits. A request has room for one timing.
bool Join(v1::UpdateJobRequest newer, v1::UpdateJobRequest& older) {
  if (older.has_timing() && newer.has_timing()) return false;
  // The end of an older run or attempt may be ignored.
  if (IsEnd(older) && IsEnd(newer) && WorkOf(older.ended_by()) != WorkOf(newer.ended_by()))
    return false;
  // The first end of a job wins at the database, and so it does here.
  if (IsEnd(older)) {
    newer.clear_failed();
    newer.clear_cancelled();
    newer.clear_ended_by();
  }
  for (v1::WorkHolder& holder : *newer.mutable_placed()) {
    // The database keeps the holder of the largest run and attempt for each way that a job came.
    auto& placed = *older.mutable_placed();
    const auto same = std::ranges::find_if(placed, [&](const v1::WorkHolder& known) {
      return known.stage() == holder.stage() && known.from() == holder.from();
    });
    if (same == placed.end()) {
      placed.Add(std::move(holder));
    } else if (const std::pair known(same->run(), same->attempt()),
               told(holder.run(), holder.attempt());
               known < told || (known == told && holder.begun())) {
      *same = std::move(holder);
    }
  }
  newer.clear_placed();
  older.MergeFrom(newer);
  return true;
}

}  // namespace

JobReporter::JobReporter(Update update, Ended ended, base::Clock& clock, Answered answered)
    : update_(std::move(update)),
      ended_(std::move(ended)),
      answered_(std::move(answered)),
      clock_(clock),
      random_(base::RandomU64()),
      thread_([this](const std::stop_token& stop) { Main(stop); }) {}

JobReporter::~JobReporter() { Close(); }

void JobReporter::ReportProgress(const base::Uid& uid, v1::JobProgress progress) {
  const base::MutexLock lock(mutex_);
  const auto known = pending_.find(uid);
  const bool replaces = known != pending_.end() && known->second.back().progress_only;
  // Progress is dropped without a word: the next step brings a newer one. No queue may be left
  // empty, so this is asked before a new job gets one.
  if (!replaces && pending_count_ >= kMaxPending) return;
  if (!replaces) Add(uid, {.request = {}, .progress_only = true});
  *pending_.at(uid).back().request.mutable_progress() = std::move(progress);
}

void JobReporter::Report(const base::Uid& uid, v1::UpdateJobRequest request) {
  const base::MutexLock lock(mutex_);
  if (const auto known = pending_.find(uid); known != pending_.end()) {
    Pending& last = known->second.back();
    if (!last.progress_only && !last.question && Join(request, last.request)) return;
  }
  Add(uid, {.request = std::move(request)});
}

void JobReporter::Add(const base::Uid& uid, Pending pending) {
  auto& queue = pending_[uid];
  if (!queue.empty() && queue.back().question) {
    queue.pop_back();
    --pending_count_;
  }
  pending.number = ++last_number_;
  queue.push_back(std::move(pending));
  ++pending_count_;
  changed_.NotifyAll();
}

std::size_t JobReporter::pending() const {
  const base::MutexLock lock(mutex_);
  return pending_count_;
}

bool JobReporter::AwaitSent(const base::Uid& uid, base::Duration limit) {
  base::MutexLock lock(mutex_);
  return clock_.WaitUntil(changed_, lock, {}, clock_.Now() + limit,
                          [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !LastOf(uid); });
}

void JobReporter::WhenAnswered(const base::Uid& uid, std::function<void()> then) {
  {
    const base::MutexLock lock(mutex_);
    if (const std::optional<std::uint64_t> last = LastOf(uid)) {
      if (waiters_count_ >= kMaxPending) {
        spdlog::warn("uid={} {} others wait already for answers about their jobs", uid.ToString(),
                     waiters_count_);
        return;
      }
      waiters_[uid].push_back({*last, std::move(then)});
      ++waiters_count_;
      return;
    }
  }
  then();
}

std::optional<std::uint64_t> JobReporter::LastOf(const base::Uid& uid) const {
  const auto waits = pending_.find(uid);
  if (waits != pending_.end() && !waits->second.back().question) return waits->second.back().number;
  const auto sent = sending_.find(uid);
  if (sent != sending_.end()) return sent->second;
  return std::nullopt;
}

std::vector<JobReporter::Waiter> JobReporter::TakeWaiters(const base::Uid& uid,
                                                          std::uint64_t number) {
  std::vector<Waiter> taken;
  const auto known = waiters_.find(uid);
  if (known == waiters_.end()) return taken;
  // A later one waits for the same update, or for a later one.
  const auto rest = std::ranges::upper_bound(known->second, number, {}, &Waiter::number);
  taken.assign(std::make_move_iterator(known->second.begin()), std::make_move_iterator(rest));
  known->second.erase(known->second.begin(), rest);
  if (known->second.empty()) waiters_.erase(known);
  waiters_count_ -= taken.size();
  return taken;
}

void JobReporter::Main(const std::stop_token& stop) {
  while (true) {
    base::MutexLock lock(mutex_);
    clock_.WaitUntil(changed_, lock, stop, clock_.Now() + kIdleWait,
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return pending_count_ > 0; });
    if (pending_count_ == 0 && stop.stop_requested()) return;
    lock.Unlock();
    if (stop.stop_requested()) return Flush();
    SendRound();
    // The pause coalesces progress: steps that come meanwhile replace each other.
    clock_.Pause(stop, kMinProgressInterval);
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
      FlushJob(uid, queue, until);
    }
  }
}

void JobReporter::FlushJob(const base::Uid& uid, std::deque<Pending>& queue,
                           base::MonotonicTime until) {
  bool taken = true;
  for (Pending& pending : queue) {
    const bool wanted = !pending.progress_only && !pending.question;
    if (wanted && (clock_.Now() >= until || Send(uid, pending) == Answer::kAgain)) {
      taken = false;
      spdlog::warn("uid={} update of the job record was not sent: {}", uid.ToString(),
                   pending.request.ShortDebugString());
    }
    if (!taken) continue;
    std::vector<Waiter> waiters;
    {
      const base::MutexLock lock(mutex_);
      waiters = TakeWaiters(uid, pending.number);
    }
    for (const Waiter& waiter : waiters) waiter.then();
  }
}

void JobReporter::SendRound() {
  std::map<base::Uid, std::deque<Pending>> round;
  {
    const base::MutexLock lock(mutex_);
    const base::MonotonicTime now = clock_.Now();
    for (auto job = pending_.begin(); job != pending_.end();) {
      const auto next = std::next(job);
      if (job->second.front().due <= now) {
        sending_.emplace(job->first, job->second.back().number);
        round.insert(pending_.extract(job));
      }
      job = next;
    }
  }
  for (auto& [uid, queue] : round) {
    std::size_t sent = 0;
    std::uint64_t answered = 0;
    Answer last = Answer::kDone;
    // The first update that must be retried holds up those behind it, which keeps the order of the
    // job's updates. Other jobs go on.
    while (!queue.empty() && (last = Send(uid, queue.front())) != Answer::kAgain) {
      answered = queue.front().number;
      queue.pop_front();
      ++sent;
    }
    base::MutexLock lock(mutex_);
    sending_.erase(uid);
    PutBack(uid, std::move(queue), last);
    // Taken under this lock, because from now on nobody waits for what has been answered.
    const std::vector<Waiter> waiters = TakeWaiters(uid, answered);
    lock.Unlock();
    for (const Waiter& waiter : waiters) waiter.then();
    // Whoever sees that nothing is pending may rely on what the waiters have done.
    lock.Lock();
    pending_count_ -= sent;
    changed_.NotifyAll();
  }
}

void JobReporter::PutBack(const base::Uid& uid, std::deque<Pending> left, Answer last) {
  const bool more_came = pending_.contains(uid);
  if (left.empty()) {
    if (last == Answer::kProposed && !more_came)
      Add(uid, {.request = {}, .question = true, .due = clock_.Now() + base::Scaled(kAskPause)});
    return;
  }
  if (left.back().question && more_came) {
    --pending_count_;
    return;
  }
  auto& newer = pending_[uid];
  newer.insert(newer.begin(), std::make_move_iterator(left.begin()),
               std::make_move_iterator(left.end()));
}

void JobReporter::BackOff(Pending& pending) {
  pending.pause = std::clamp(pending.pause * 2, kFirstPause, kLongestPause);
  // Instances whose updates failed together do not come back together.
  const base::Duration::rep full = base::Scaled(pending.pause).count();
  pending.due = clock_.Now() + base::Duration(std::uniform_int_distribution<base::Duration::rep>(
                                   full / 2, full)(random_));
}

JobReporter::Answer JobReporter::Send(const base::Uid& uid, Pending& pending) {
  v1::UpdateJobRequest request = pending.request;
  request.set_uid(uid.ToString());
  const auto record = update_(request);
  if (record.ok()) {
    const v1::Job::State state = record->job().state();
    if (job::IsTerminal(state) && state != v1::Job::SUCCEEDED) ended_(uid);
    if (answered_) answered_(*record);
    if (!record->has_proposed() || job::IsTerminal(state)) return Answer::kDone;
    // An end that is only proposed dies with the database that proposes it. It is told again until
    // the databases have settled it.
    if (!IsEnd(request)) return Answer::kProposed;
    BackOff(pending);
    return Answer::kAgain;
  }
  const base::MonotonicTime now = clock_.Now();
  const bool first = !pending.refused.has_value();
  if (first) pending.refused = now;
  const bool over = now - *pending.refused >= kLongestLife;
  const bool again = !IsDefinite(record.status()) && !pending.progress_only && !over;
  if (!again || first) {
    spdlog::warn("uid={} update of the job record failed{}: {}", uid.ToString(),
                 again  ? ", and is repeated"
                 : over ? " for a day, and is given up"
                        : "",
                 base::Message(record.status()));
  }
  if (again) BackOff(pending);
  return again ? Answer::kAgain : Answer::kDone;
}

}  // namespace onepiece::instance
