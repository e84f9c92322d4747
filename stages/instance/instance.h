// A workflow instance: takes work out of its ring, computes its stage, hands the result on
// (docs/architecture.md, "Life of a job").
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/inbox.h"
#include "cluster/node/job_records.h"
#include "cluster/node/node_agent.h"
#include "cluster/node/outbox.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/instance.grpc.pb.h"
#include "stages/device/device_meter.h"
#include "stages/instance/drain.h"
#include "stages/instance/former_set.h"
#include "stages/instance/idle_work.h"
#include "stages/instance/job_reporter.h"
#include "stages/instance/result_delivery.h"
#include "stages/instance/stage_metrics.h"
#include "stages/instance/work_counts.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/result_deliver.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::instance {

/// Joins the runtime (scheduler, workers, deliverer) to the cluster (inbox, outbox, records,
/// NodeManager).
///
/// Ownership: Owns all its parts and threads. Borrows the fabric, metrics, spans and the clock.
/// Threading: Open, Join and Leave on one thread; everything else happens on its own threads.
class Instance final : public runtime::WorkEvents, public v1::InstanceService::Service {
 public:
  /// Opens the ring. A drain hands over what is still computed after `hand_over_after`.
  /// Errors: RESOURCE_EXHAUSTED (no shared memory), those of loading plug-ins later show in the
  /// instance's state.
  static absl::StatusOr<std::unique_ptr<Instance>> Open(
      const v1::InstanceConfig& config, fabric::Fabric& fabric, telemetry::Metrics& metrics,
      telemetry::Spans& spans, base::Clock& clock,
      base::Duration hand_over_after = base::Scaled(kHandOverAfter));
  ~Instance() override;

  /// RingService of the inbox; serve it together with this object (InstanceService).
  [[nodiscard]] grpc::Service* ring_service() { return inbox_->service(); }
  /// Registers with the NodeManager as reachable at `address` and begins to take work.
  void Join(const std::string& address, const std::string& metrics_address);
  /// Leaves the cluster; jobs held here fail with INSTANCE_STOPPED, except that branches which wait
  /// for others go to another instance that serves the stage. Idempotent.
  void Leave();

  grpc::Status GetInstance(grpc::ServerContext* context, const v1::GetInstanceRequest* request,
                           v1::Instance* response) override;
  grpc::Status CancelWork(grpc::ServerContext* context, const v1::CancelWorkRequest* request,
                          google::protobuf::Empty* response) override;

 private:
  Instance(const v1::InstanceConfig& config, fabric::Fabric& fabric, telemetry::Metrics& metrics,
           telemetry::Spans& spans, base::Clock& clock, base::Duration hand_over_after);

  // WorkEvents, on worker threads.
  void Started(const runtime::WorkItem& item) override;
  void Progressed(const runtime::WorkItem& item, int step, int steps) override;
  void Finished(runtime::FinishedWork work) override;
  void ModelLoaded(const std::string& stage, const std::string& model_dir,
                   base::Duration time) override;

  void Pump(const std::stop_token& stop);
  void TakeIn(node::Received received);
  // The job came from a workflow set that this instance has left: no message goes from one to the
  // other.
  bool FailedForFormerSet(const message::Header& header);
  // Looks after jobs that wait for a branch, drains and models that could not be loaded.
  void Upkeep(const std::stop_token& stop);
  // Parts of joins that complete elsewhere are sent there.
  void SendPartsElsewhere();
  void Rest(const std::stop_token& stop, base::Duration duration);
  void AwaitUnrouted();
  void SendLeft();
  void Assign(const v1::Assignment& assignment);
  runtime::StageAssignment StageOf(const v1::Assignment& assignment) const;
  // Waits until nothing of the workflow set is left, fails the rest, and remembers the set.
  void LeaveSet(std::uint64_t epoch);
  void LookAfterDrain();
  // Messages and items in any form.
  std::size_t Held() const;
  bool OthersServe(const node::Routing& table, const std::string& app,
                   const std::string& stage) const;
  // For all that this instance serves others are routed to.
  bool OthersServeAll() const;
  void RetryFailedModels();
  void StatusChanged(const runtime::TaskStatus& status);
  // Lets the agent report how things are.
  void Publish();
  // The workflow set of the assignment that was taken on last.
  std::string CurrentSet();
  v1::NodeLoad Load();
  void AddDevice(v1::NodeLoad& load);
  // "cpu" or "cuda:N".
  std::string DeviceName() const { return config_.device().empty() ? "cpu" : config_.device(); }

  void Observe(const runtime::FinishedWork& work);
  // The item, when nobody took it yet.
  std::optional<runtime::FinishedWork> Deliver(runtime::FinishedWork work);
  // An item that belongs elsewhere goes to who serves its stage now.
  bool StaysHere(const message::Header& header) const;
  absl::Status Forward(const runtime::WorkItem& item);
  // A result goes to every next stage, or after the last one to a database.
  absl::Status HandOn(runtime::FinishedWork& work);
  absl::StatusOr<v1::WorkHolder> SendToStage(const message::Message& message);
  absl::Status SendToDatabase(message::Message message, const v1::UpdateJobRequest& timing);
  static absl::Status CheckStage(const node::Routing& table, const message::Header& header);
  void Fail(const base::Uid& uid, const absl::Status& status, const std::string& stage);
  void FailStopped(const message::Header& header);
  static v1::WorkHolder Holder(const node::Routing& table, const message::Header& header,
                               const v1::Endpoint& endpoint, std::uint32_t attempt);
  // The job's deadline on the monotonic clock.
  base::MonotonicTime DeadlineOf(const message::Header& header) const;
  std::shared_ptr<const node::Routing> routing() const { return view_.routing(); }
  const std::string& node_id() const { return config_.node().node_id(); }

  const v1::InstanceConfig config_;
  fabric::Fabric& fabric_;
  telemetry::Metrics& metrics_;
  telemetry::Spans& spans_;
  base::Clock& clock_;
  node::ClusterView view_;            // Filled by agent_, read by all parts below.
  std::atomic<bool> joined_ = false;  // Everything below is made; gRPC handlers come before that.
  std::atomic<bool> leaving_ = false;
  std::unique_ptr<node::NodeAgent> agent_;  // Set by Join, before any thread below starts.
  std::unique_ptr<node::Inbox> inbox_;
  std::unique_ptr<node::Outbox> outbox_;
  std::unique_ptr<values::ValuePeers> values_;
  std::unique_ptr<node::JobRecords> records_;
  std::unique_ptr<JobReporter> reporter_;
  std::unique_ptr<runtime::RequestScheduler> scheduler_;
  std::unique_ptr<runtime::ResultDeliver> deliver_;
  std::unique_ptr<runtime::TaskManager> tasks_;
  std::unique_ptr<IdleWork> idle_work_;
  StageMetrics stage_metrics_;
  WorkCounts counts_;
  Drain drain_;
  // The pump has waited for a message in vain since the last one: none is between ring and queue.
  std::atomic<bool> pump_idle_ = false;
  base::Mutex assign_mutex_;  // Held while an assignment is taken on.
  // Held while the agent is told, so that it hears the latest last.
  base::Mutex publish_mutex_ ABSL_ACQUIRED_AFTER(assign_mutex_);
  std::string workflow_set_ ABSL_GUARDED_BY(publish_mutex_);  // Of the assignment.
  // An assignment of another set has come and is not taken on yet.
  std::atomic<bool> leaving_set_ = false;
  mutable base::Mutex former_mutex_;
  std::shared_ptr<FormerSet> former_ ABSL_GUARDED_BY(former_mutex_);  // Null: none.
  std::unique_ptr<device::DeviceMeter> meter_;  // Null: of the cpu. Report thread only.
  base::MonotonicTime load_since_{};            // Agent's report thread only.
  base::Duration load_busy_{};                  // Likewise.
  std::vector<runtime::WorkItem> left_;         // Came while leaving: the pump's, then Leave's.
  std::jthread pump_;
  std::jthread upkeep_;
};

}  // namespace onepiece::instance
