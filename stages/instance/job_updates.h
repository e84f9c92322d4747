// JobUpdates: tells the job records what becomes of the jobs of this instance.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "cluster/base/ids.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/database.pb.h"
#include "stages/instance/job_reporter.h"

namespace onepiece::instance {

/// Makes the updates that an instance reports of its jobs. Nothing here waits for a database.
///
/// Ownership: borrows the view, the reporter and `leaving`.
/// Threading: thread-safe.
class JobUpdates {
 public:
  /// While `leaving` is set, a cancelled job counts as one that the instance stopped.
  JobUpdates(std::string node_id, const node::ClusterView& view, JobReporter& reporter,
             const std::atomic<bool>& leaving);

  /// This instance holds the job now.
  void Placed(const message::Header& header);
  void Progressed(const message::Header& header, int step, int steps);
  /// This instance begins to compute the work that came with these messages. Work that was given
  /// away before may be what ends instances: then this waits for about a second at most until a
  /// database knows that it has begun.
  void Begun(const message::Header& header, std::span<const message::Message> parts);
  /// The job ended here with `status`: CANCELLED cancels it, every other status fails it. The
  /// databases ignore it when the work is being done again elsewhere.
  void Fail(const message::Header& header, const absl::Status& status);
  /// The instance stops, and nobody else takes the job.
  void FailStopped(const message::Header& header);
  /// Returns whether so many updates wait that no more work should be taken in.
  [[nodiscard]] bool full() const { return reporter_.full(); }
  /// Calls `then` when the databases have answered what was reported of the job so far
  /// (JobReporter::WhenAnswered).
  void WhenAnswered(const base::Uid& uid, std::function<void()> then);
  /// Every other update.
  void Report(const base::Uid& uid, v1::UpdateJobRequest update);

 private:
  const std::string node_id_;
  const node::ClusterView& view_;
  JobReporter& reporter_;
  const std::atomic<bool>& leaving_;
};

}  // namespace onepiece::instance
