// StatePublisher: what an instance tells the NodeManager of its state.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/node_agent.h"
#include "stages/instance/drain.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::instance {

/// Composes the node's status from the tasks, the drain, the routing and the workflow set, and
/// tells it. Statuses are told one at a time, so that the last one told is the newest.
///
/// Ownership: borrows the view, the drain and `leaving`.
/// Threading: thread-safe.
class StatePublisher {
 public:
  using Tell = std::function<void(node::NodeStatus)>;

  /// Once `leaving` is set, only PublishLeaving tells anything.
  StatePublisher(std::string workflow_set, const node::ClusterView& view, const Drain& drain,
                 const std::atomic<bool>& leaving, Tell tell);

  /// Tells how things are. Call it after the routing or the drain have changed.
  void Publish();
  /// The tasks have changed: logs why loading failed, if it did, and publishes.
  void StatusChanged(const runtime::TaskStatus& status);
  /// The instance takes itself out of the routes. It still lives, so its jobs are not lost.
  void PublishLeaving();

  /// The workflow set of the assignment that was taken last.
  [[nodiscard]] std::string workflow_set() const;
  void SetWorkflowSet(const std::string& workflow_set);
  /// Whether an assignment of another set has come that is not taken on yet.
  void SetLeavingSet(bool leaving_set);

 private:
  node::NodeStatus Compose() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const node::ClusterView& view_;
  const Drain& drain_;
  const std::atomic<bool>& leaving_;
  const Tell tell_;
  mutable base::Mutex mutex_;  // Held while `tell_` runs.
  std::string workflow_set_ ABSL_GUARDED_BY(mutex_);
  bool leaving_set_ ABSL_GUARDED_BY(mutex_) = false;
  runtime::TaskStatus tasks_ ABSL_GUARDED_BY(mutex_);  // As last told.
};

}  // namespace onepiece::instance
