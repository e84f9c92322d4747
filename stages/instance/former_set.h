// FormerSet: the workflow set that an instance was lent to before. What still comes from there is
// failed, where that set's clients see it.
#pragma once

#include <memory>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/job_records.h"
#include "cluster/node/routing.h"
#include "stages/instance/job_reporter.h"

namespace onepiece::instance {

/// Reason of a job that came too late to an instance which had left its workflow set, or was still
/// held there when it left.
inline constexpr char kWorkflowSetLeft[] = "WORKFLOW_SET_LEFT";
absl::Status WorkflowSetLeft(const std::string& workflow_set);

/// Threading: Thread-safe.
class FormerSet {
 public:
  /// `table` is the last one of that set; its databases are told.
  FormerSet(std::shared_ptr<const node::Routing> table, base::Clock& clock);

  /// Whether a node of this set sent the message, and not one of the set that `now` is of.
  [[nodiscard]] bool Sent(const message::Header& header, const node::Routing& now) const;
  /// Fails the job, with kWorkflowSetLeft. Never blocks.
  void Fail(const message::Header& header, const std::string& node_id);

 private:
  const std::shared_ptr<const node::Routing> table_;
  node::ClusterView view_;  // Of table_, and of nothing else.
  node::JobRecords records_;
  JobReporter reporter_;
};

}  // namespace onepiece::instance
