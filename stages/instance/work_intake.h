// WorkIntake: takes messages out of the instance's ring and queues them as work.
#pragma once

#include <atomic>
#include <cstddef>
#include <stop_token>
#include <thread>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/inbox.h"
#include "stages/instance/drain.h"
#include "stages/instance/former_set.h"
#include "stages/instance/job_updates.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/result_deliver.h"
#include "stages/runtime/task_manager.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// Pumps the ring into the scheduler. Messages that belong elsewhere go to the deliverer.
///
/// Ownership: owns its thread. Borrows everything that it is given.
/// Threading: Start, Stop and TakeRest on one thread; arriving() on any.
class WorkIntake {
 public:
  struct Parts {
    const node::ClusterView& view;
    node::Inbox& inbox;
    runtime::RequestScheduler& scheduler;
    runtime::ResultDeliver& deliver;
    const runtime::TaskManager& tasks;
    const Drain& drain;
    FormerSetFilter& former_set;
    JobUpdates& updates;
    base::Clock& clock;
  };

  /// The inbox asks it for room for large messages from now on, so the inbox's service ends before
  /// this does.
  explicit WorkIntake(Parts parts);

  void Start();
  /// Ends the thread. Idempotent.
  void Stop();
  /// Empties the ring once more, and returns the work that came after the scheduler was closed.
  /// Call it after Stop.
  std::vector<runtime::WorkItem> TakeRest();
  /// Returns about how many messages are in the ring, or between the ring and the queue. It may
  /// miss one that is just being received, so a drain looks twice (Drain).
  [[nodiscard]] std::size_t arriving() const;

 private:
  void Pump(const std::stop_token& stop);
  void TakeIn(node::Received received);
  node::Inbox::Admitted Admit(const v1::ReserveValueRequest& request);

  const Parts parts_;
  // The pump's last wait for a message was in vain.
  std::atomic<bool> idle_ = false;
  // Work that came after the scheduler was closed. The pump's, and after Stop TakeRest's.
  std::vector<runtime::WorkItem> left_;
  std::jthread pump_;
};

}  // namespace onepiece::instance
