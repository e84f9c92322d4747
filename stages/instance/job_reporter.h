// JobReporter: reports the progress of an instance's jobs to the databases, without ever holding up
// a worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::instance {

/// Sends UpdateJob calls from its own thread, in order for each job. It coalesces progress: only
/// the newest step of a job waits, and the steps of a job are sent at most ten times a second.
///
/// It repeats every other update until the answer is definite: a database has it, or it refuses the
/// update for good (INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION). An end that is only proposed
/// is repeated until the databases have settled how the job ends. The pauses between attempts
/// grow from 200 ms to 3 s, for each job by itself. After kLongestLife, when the record is over
/// anyway, an update is given up, and logged. Updates of a job that wait are joined into one where
/// possible. Beyond kMaxPending only progress is dropped. Whoever takes work in asks full() first,
/// so that what is held bounds what can still be reported.
///
/// A proposed end that an answer shows may vanish with the database that proposes it. So the job
/// goes on, and its record is asked for every second (scaled), or with the job's next update, until
/// the databases have settled the end or none is proposed.
///
/// Ownership: owns its thread.
/// Threading: thread-safe. Callbacks run on the reporter's thread.
/// Blocking: reports never block. AwaitSent blocks for its limit at most. Close blocks for the call
/// in flight, and for about 3 s and one call more at most.
class JobReporter {
 public:
  using Update = std::function<absl::StatusOr<v1::JobRecord>(const v1::UpdateJobRequest&)>;
  /// Called when an answer shows that the job has ended elsewhere (cancelled, failed, expired).
  /// Not for an end that is only proposed.
  using Ended = std::function<void(const base::Uid&)>;
  /// Called with every record that an answer brings.
  using Answered = std::function<void(const v1::JobRecord&)>;
  static constexpr std::size_t kMaxPending = 10'000;
  /// Databases that answer at all forget a record, and say so, long before.
  static constexpr base::Duration kLongestLife = std::chrono::hours(24);

  JobReporter(Update update, Ended ended, base::Clock& clock, Answered answered = {});
  ~JobReporter();  ///< Close().
  JobReporter(const JobReporter&) = delete;
  JobReporter& operator=(const JobReporter&) = delete;

  void ReportProgress(const base::Uid& uid, v1::JobProgress progress);
  /// Reports anything but progress. `request.uid` is filled in here.
  void Report(const base::Uid& uid, v1::UpdateJobRequest request);
  /// Waits until a database has what was reported of the job so far, for `limit` at most. Returns
  /// whether that is so.
  bool AwaitSent(const base::Uid& uid, base::Duration limit);
  /// Calls `then` when what was reported of the job so far has had a definite answer: at once when
  /// it has, and else on the reporter's thread. It is not called for an update that no database
  /// took before Close. Beyond kMaxPending of them that wait, `then` is dropped, with a warning.
  void WhenAnswered(const base::Uid& uid, std::function<void()> then);
  /// Makes one last attempt at each pending update that is not progress, jobs that have ended
  /// first. Logs those that no database took. Nothing may be reported afterwards. Idempotent.
  void Close() { thread_ = {}; }
  /// Returns the number of updates that no database has yet, and of jobs whose record is asked for.
  [[nodiscard]] std::size_t pending() const;
  /// Returns whether kMaxPending updates wait, so that no more work should be taken in.
  [[nodiscard]] bool full() const { return pending() >= kMaxPending; }

 private:
  struct Pending {
    v1::UpdateJobRequest request;
    bool progress_only = false;
    bool question = false;  ///< An empty update, the only one of its job: has its end been settled?
    /// When a database first did not take it, or none. This is logged once.
    std::optional<base::MonotonicTime> refused;
    base::MonotonicTime due{};  ///< It is not tried before.
    base::Duration pause{};     ///< The last pause, without jitter.
    std::uint64_t number = 0;   ///< Updates that came later have larger ones.
  };
  struct Waiter {
    std::uint64_t number = 0;  ///< Of the last update that it waits for.
    std::function<void()> then;
  };
  enum class Answer : std::uint8_t {
    kDone,
    kProposed,  ///< It is done, and the job may end soon.
    kAgain
  };

  void Main(const std::stop_token& stop);
  // Takes kFlushLimit in all.
  void Flush();
  void FlushJob(const base::Uid& uid, std::deque<Pending>& queue, base::MonotonicTime until);
  // Sends the pending updates of every job that are due.
  void SendRound();
  Answer Send(const base::Uid& uid, Pending& pending);
  // Puts an update behind those of its job. It is a question too, so it replaces one.
  void Add(const base::Uid& uid, Pending pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts what is left of a round before the updates that came meanwhile.
  void PutBack(const base::Uid& uid, std::deque<Pending> left, Answer last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the number of the job's last update that waits for its answer, or none.
  std::optional<std::uint64_t> LastOf(const base::Uid& uid) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes and returns what waits for the job's updates up to this one.
  std::vector<Waiter> TakeWaiters(const base::Uid& uid, std::uint64_t number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Says when the update, which a database did not take, is tried next.
  void BackOff(Pending& pending);

  const Update update_;
  const Ended ended_;
  const Answered answered_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::map<base::Uid, std::deque<Pending>> pending_ ABSL_GUARDED_BY(mutex_);  // None is empty.
  std::size_t pending_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::minstd_rand random_;  // Used by the thread only.
  // The jobs of this round that are not through, with the number of their last update.
  std::map<base::Uid, std::uint64_t> sending_ ABSL_GUARDED_BY(mutex_);
  std::map<base::Uid, std::vector<Waiter>> waiters_ ABSL_GUARDED_BY(mutex_);
  std::size_t waiters_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

}  // namespace onepiece::instance
