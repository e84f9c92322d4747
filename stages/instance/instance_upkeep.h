// InstanceUpkeep: the duties that an instance has at intervals.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/node/cluster_view.h"
#include "stages/instance/assignment_taker.h"
#include "stages/instance/drain.h"
#include "stages/instance/job_updates.h"
#include "stages/instance/state_publisher.h"
#include "stages/instance/work_intake.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/result_deliver.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::instance {

/// Gives up joins that will not be complete in time, asks whether the jobs of others still need
/// them, sends branches to the instance where their job meets, moves a drain on, and tries failed
/// models again.
///
/// Ownership: owns its thread. Borrows everything that it is given.
/// Threading: Start and Stop on one thread.
class InstanceUpkeep {
 public:
  struct Parts {
    const node::ClusterView& view;
    runtime::RequestScheduler& scheduler;
    runtime::ResultDeliver& deliver;
    const runtime::TaskManager& tasks;
    Drain& drain;
    const WorkIntake& intake;
    JobUpdates& updates;
    AssignmentTaker& assignments;
    StatePublisher& publisher;
    base::Clock& clock;
  };

  InstanceUpkeep(std::string node_id, Parts parts);

  void Start();
  /// Ends the thread. Idempotent.
  void Stop();

 private:
  void Run(const std::stop_token& stop);
  void ExpireJoins();
  void AskAboutJoins();
  void SendPartsElsewhere();
  void LookAfterDrain();
  // Messages and items that the instance holds in any form.
  std::size_t Held() const;
  // Whether other instances are routed to for everything that this one serves.
  bool OthersServeAll() const;

  const std::string node_id_;
  const Parts parts_;
  std::jthread thread_;
};

}  // namespace onepiece::instance
