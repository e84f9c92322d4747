// JobReporter: reports the progress of an instance's jobs to the databases, without ever holding up
// a worker.
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

/// Sends UpdateJob calls from its own thread, in order for each job. It coalesces progress: only
/// the newest step of a job waits, and the steps of a job are sent at most ten times a second. It
/// retries other updates for 30 s. When kMaxPending updates wait, further ones are dropped.
///
/// Ownership: owns its thread.
/// Threading: thread-safe. Callbacks run on the reporter's thread.
/// Blocking: reports never block. Destruction blocks for the call in flight, and for about 3 s more
/// at most.
class JobReporter {
 public:
  using Update = std::function<absl::StatusOr<v1::JobRecord>(const v1::UpdateJobRequest&)>;
  /// Called when an answer shows that the job has ended elsewhere (cancelled, failed, expired).
  using Ended = std::function<void(const base::Uid&)>;
  static constexpr std::size_t kMaxPending = 10'000;

  JobReporter(Update update, Ended ended, base::Clock& clock);
  /// Makes one last attempt at each pending update that is not progress.
  ~JobReporter();
  JobReporter(const JobReporter&) = delete;
  JobReporter& operator=(const JobReporter&) = delete;

  void ReportProgress(const base::Uid& uid, v1::JobProgress progress);
  /// Reports anything but progress. `request.uid` is filled in here.
  void Report(const base::Uid& uid, v1::UpdateJobRequest request);
  /// Returns the number of updates that no database has yet.
  [[nodiscard]] std::size_t pending() const;

 private:
  struct Pending {
    v1::UpdateJobRequest request;
    base::MonotonicTime queued{};
    bool progress_only = false;
  };

  void Main(const std::stop_token& stop);
  // Makes one last attempt at each pending update that is not progress, for kFlushLimit in all.
  void Flush();
  // Sends the pending updates of every job. Returns false when any of them must be retried.
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
