// A workflow instance: takes work out of its ring, computes its stage, hands the result on
// (docs/architecture.md, "Life of a job").
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/inbox.h"
#include "cluster/node/job_records.h"
#include "cluster/node/kept_work.h"
#include "cluster/node/kept_work_metrics.h"
#include "cluster/node/node_agent.h"
#include "cluster/node/outbox.h"
#include "cluster/node/settler.h"
#include "cluster/node/work_service.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "cluster/values/remote_values.h"
#include "onepiece/v1/config.pb.h"
#include "stages/instance/assignment_taker.h"
#include "stages/instance/drain.h"
#include "stages/instance/former_set.h"
#include "stages/instance/idle_work.h"
#include "stages/instance/instance_service.h"
#include "stages/instance/instance_upkeep.h"
#include "stages/instance/job_reporter.h"
#include "stages/instance/job_updates.h"
#include "stages/instance/load_report.h"
#include "stages/instance/stage_metrics.h"
#include "stages/instance/state_publisher.h"
#include "stages/instance/work_counts.h"
#include "stages/instance/work_delivery.h"
#include "stages/instance/work_intake.h"
#include "stages/instance/work_recorder.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/result_deliver.h"
#include "stages/runtime/task_manager.h"
#include "stages/worker/worker_stage.h"

namespace onepiece::rpc {
class Door;
}
namespace onepiece::instance {

/// Wires the runtime (scheduler, workers, deliverer) to the cluster (inbox, outbox, records,
/// NodeManager). A job passes through the parts in this order: WorkIntake, RequestScheduler,
/// TaskManager with WorkRecorder, ResultDeliver with WorkDelivery.
///
/// Ownership: owns all its parts and threads. Borrows the fabric, metrics, spans and the clock. It
/// must live until `metrics` has stopped serving, because each scrape reads its counts.
/// Threading: Open, Join and Leave on one thread. Everything else happens on its own threads.
class Instance {
 public:
  /// Opens the ring. A drain hands over what is still being computed after `hand_over_after`.
  /// Errors of loading plug-ins show later, in the instance's state.
  ///
  /// Errors: RESOURCE_EXHAUSTED (no shared memory), INVALID_ARGUMENT (BAD_DEVICE).
  static absl::StatusOr<std::unique_ptr<Instance>> Open(
      v1::InstanceConfig config, fabric::Fabric& fabric, telemetry::Metrics& metrics,
      telemetry::Spans& spans, base::Clock& clock,
      base::Duration hand_over_after = base::Scaled(kHandOverAfter));
  /// Leaves.
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  /// Returns the services to serve while the instance lives: InstanceService, WorkService, and the
  /// RingService of its inbox.
  [[nodiscard]] std::vector<grpc::Service*> services() {
    return {&service_, &work_service_, inbox_->service()};
  }
  /// `door` says who calls the services; null, and at first: the instance is insecure. REQUIRES:
  /// before the services are served.
  void SetDoor(rpc::Door* door);
  /// Registers with the NodeManager as reachable at `address` and begins to take work.
  void Join(const std::string& address, const std::string& metrics_address);
  /// Leaves the cluster. Work that nobody has begun, and work that reaches a step boundary, goes to
  /// another instance of the stage. What finds none is given away by whoever keeps it, once this
  /// instance is gone. Jobs whose work nobody keeps fail with INSTANCE_STOPPED. Idempotent.
  void Leave();

 private:
  Instance(v1::InstanceConfig config, std::unique_ptr<node::ClusterView> view,
           std::unique_ptr<node::Inbox> inbox, fabric::Fabric& fabric, telemetry::Metrics& metrics,
           telemetry::Spans& spans, base::Clock& clock, base::Duration hand_over_after);

  node::KeptWork::Ways KeptWays();
  bool IsRouted() const;
  void AwaitUnrouted();
  bool ServesHere(const std::string& stage, const std::string& app) const;
  const std::string& node_id() const { return config_.node().node_id(); }

  const v1::InstanceConfig config_;
  telemetry::Metrics& metrics_;
  base::Clock& clock_;
  rpc::Door* door_ = nullptr;
  std::atomic<bool> leaving_ = false;
  // Each part borrows earlier ones. Filled by agent_.
  const std::unique_ptr<node::ClusterView> view_;
  const std::unique_ptr<node::Inbox> inbox_;
  const std::unique_ptr<node::Outbox> outbox_;
  values::ValuePeers values_;
  node::JobRecords records_;
  Drain drain_;
  runtime::RequestScheduler scheduler_;
  std::unique_ptr<JobReporter> reporter_;  // Null after Leave.
  JobUpdates updates_;
  FormerSetFilter former_set_;
  StatePublisher publisher_;
  node::KeptWork kept_;
  const node::ScrapeHook show_kept_;
  node::WorkService work_service_;
  node::Settler settler_;
  WorkDelivery delivery_;
  runtime::ResultDeliver deliver_;
  WorkCounts counts_;
  WorkRecorder recorder_;
  worker::Workers workers_;
  runtime::TaskManager tasks_;
  IdleWork idle_work_;
  StageMetrics stage_metrics_;
  AssignmentTaker assignments_;
  WorkIntake intake_;
  InstanceUpkeep upkeep_;
  LoadReport load_report_;
  InstanceService service_;
  std::unique_ptr<node::NodeAgent> agent_;  // Set by Join.
};

}  // namespace onepiece::instance
