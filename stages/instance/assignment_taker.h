// AssignmentTaker: makes the instance serve what the NodeManager assigns to it.
#pragma once

#include <atomic>
#include <cstdint>

#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/kept_work.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/node_manager.pb.h"
#include "stages/instance/drain.h"
#include "stages/instance/former_set.h"
#include "stages/instance/idle_work.h"
#include "stages/instance/job_reporter.h"
#include "stages/instance/state_publisher.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::instance {

/// Returns the stage of an assignment, as the task manager wants it. `config` must name the device
/// and the number of workers.
runtime::StageAssignment StageOf(const v1::Assignment& assignment,
                                 const v1::InstanceConfig& config);

/// Takes assignments on: drains, changes the stage, moves to another workflow set, and gives idle
/// time to idle work.
///
/// Ownership: borrows everything that it is given.
/// Threading: thread-safe. Assign is called by one thread only.
/// Blocking: Assign waits for items that are being computed when the stage changes, and up to a
/// minute when the instance leaves a workflow set without having been drained.
class AssignmentTaker {
 public:
  struct Parts {
    const node::ClusterView& view;
    runtime::RequestScheduler& scheduler;
    runtime::TaskManager& tasks;
    Drain& drain;
    IdleWork& idle_work;
    FormerSetFilter& former_set;
    const JobReporter& reporter;
    const node::KeptWork& kept;
    StatePublisher& publisher;
    base::Clock& clock;
    const std::atomic<bool>& leaving;  ///< The instance leaves: assignments are ignored.
  };

  /// `config` must outlive this.
  AssignmentTaker(const v1::InstanceConfig& config, Parts parts) : config_(config), parts_(parts) {}

  void Assign(const v1::Assignment& assignment);
  /// Tries again to load models that could not be loaded. Does nothing while an assignment is being
  /// taken on.
  void RetryFailedModels();
  /// Ends the idle work and all tasks. Call it once `leaving` is set.
  void Release();

 private:
  void LeaveSet(std::uint64_t epoch);

  const v1::InstanceConfig& config_;
  const Parts parts_;
  base::Mutex mutex_;  // Held while an assignment is taken on: the tasks change under it only.
};

}  // namespace onepiece::instance
