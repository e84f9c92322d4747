// WorkRecorder: counts, metrics, spans and job records of the work that the task workers do.
#pragma once

#include <functional>
#include <string>

#include "cluster/node/cluster_view.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "stages/instance/job_updates.h"
#include "stages/instance/work_counts.h"
#include "stages/runtime/result_deliver.h"
#include "stages/runtime/task_manager.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// Notes what the task workers tell, and passes finished work on to be delivered.
///
/// Ownership: borrows everything that it is given.
/// Threading: thread-safe; the calls come on the workers' threads.
/// Blocking: Finished waits for room in `deliver`, which is the backpressure on the workers.
class WorkRecorder final : public runtime::WorkEvents {
 public:
  struct Parts {
    const node::ClusterView& view;
    JobUpdates& updates;
    runtime::ResultDeliver& deliver;
    WorkCounts& counts;
    telemetry::Metrics& metrics;
    telemetry::Spans& spans;
  };
  /// Returns the assignment whose models are being loaded.
  using CurrentAssignment = std::function<runtime::StageAssignment()>;

  WorkRecorder(Parts parts, CurrentAssignment assignment);

  void Started(const runtime::WorkItem& item) override;
  void Progressed(const runtime::WorkItem& item, int step, int steps) override;
  void Finished(runtime::FinishedWork work) override;
  void ModelLoaded(const std::string& stage, const std::string& model_dir,
                   base::Duration time) override;

 private:
  void Count(const runtime::FinishedWork& work);
  void Measure(const runtime::FinishedWork& work);
  void RecordSpans(const runtime::FinishedWork& work);

  const Parts parts_;
  const CurrentAssignment assignment_;
};

}  // namespace onepiece::instance
