// JobReporter: tells the databases how an instance's jobs are getting on, without ever holding a
// worker up.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::instance {

/// Sends UpdateJob calls from its own thread, in order for each job. Progress is coalesced: only
/// the newest step of a job waits, and a job's steps go out at most once in
/// `min_progress_interval`. Other updates are repeated until the database has them or
/// `give_up_after` is over.
///
/// Threading: Thread-safe. Callbacks run on the reporter's thread.
/// Blocking: Reports never block. Bounded: beyond kMaxPending updates progress is dropped first.
class JobReporter {
 public:
  using Update = std::function<absl::StatusOr<v1::JobRecord>(const v1::UpdateJobRequest&)>;
  /// Told when an answer shows that the job has ended elsewhere (cancelled, failed, expired).
  using Ended = std::function<void(const base::Uid&)>;
  static constexpr std::size_t kMaxPending = 10'000;

  JobReporter(Update update, Ended ended, base::Clock& clock);
  /// Sends what is pending, one attempt each.
  ~JobReporter();
  JobReporter(const JobReporter&) = delete;
  JobReporter& operator=(const JobReporter&) = delete;

  void ReportProgress(const base::Uid& uid, v1::JobProgress progress);
  /// Everything but progress. `request.uid` is filled in here.
  void Report(const base::Uid& uid, v1::UpdateJobRequest request);
  /// Updates that no database has yet.
  [[nodiscard]] std::size_t pending() const;

 private:
  struct Pending {
    v1::UpdateJobRequest request;
    base::MonotonicTime queued{};
    bool progress_only = false;
  };

  void Main(const std::stop_token& stop);
  // The end: one attempt at each update that matters.
  void Flush();
  // Sends the oldest update of every job once. False when any has to be repeated.
  bool SendRound();
  bool Send(const base::Uid& uid, const Pending& pending);

  const Update update_;
  const Ended ended_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::map<base::Uid, std::deque<Pending>> pending_ ABSL_GUARDED_BY(mutex_);
  std::size_t pending_count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

}  // namespace onepiece::instance
