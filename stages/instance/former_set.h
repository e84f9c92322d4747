// FormerSet: the workflow set that an instance was lent to before. Jobs that still come from there
// are failed in that set's databases, where its clients see it.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/job_records.h"
#include "cluster/node/routing.h"
#include "stages/instance/job_reporter.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// The reason of a job that came to an instance after it had left the job's workflow set, or that
/// the instance still held when it left.
inline constexpr char kWorkflowSetLeft[] = "WORKFLOW_SET_LEFT";
absl::Status WorkflowSetLeft(const std::string& workflow_set);

/// A workflow set that the instance has left.
///
/// Threading: thread-safe.
class FormerSet {
 public:
  /// `table` is the last routing table of that set. Its databases are told of failed jobs.
  FormerSet(std::shared_ptr<const node::Routing> table, base::Clock& clock);

  /// Returns whether a node of this set sent the message, and no node of the set of `now`.
  [[nodiscard]] bool Sent(const message::Header& header, const node::Routing& now) const;
  /// Fails the item's job with kWorkflowSetLeft. Work that others keep is dropped instead: they
  /// give it to another instance, because their tables show that this one has left. Never blocks.
  void Fail(const runtime::WorkItem& item, const std::string& node_id);

 private:
  const std::shared_ptr<const node::Routing> table_;
  node::ClusterView view_;  // Of table_, and of nothing else.
  node::JobRecords records_;
  JobReporter reporter_;
};

/// Fails the messages that still come from the workflow set that the instance left last. No message
/// may go from one set to the other.
///
/// Ownership: borrows the view.
/// Threading: thread-safe.
class FormerSetFilter {
 public:
  FormerSetFilter(std::string node_id, const node::ClusterView& view);

  /// Fails the job (FormerSet::Fail) and returns true when a node of the former set sent the
  /// message.
  bool FailIfLate(const runtime::WorkItem& item);
  /// The instance has left this set.
  void Replace(std::shared_ptr<FormerSet> former);

 private:
  const std::string node_id_;
  const node::ClusterView& view_;
  base::Mutex mutex_;
  std::shared_ptr<FormerSet> former_ ABSL_GUARDED_BY(mutex_);  // Null: no set was left.
};

}  // namespace onepiece::instance
