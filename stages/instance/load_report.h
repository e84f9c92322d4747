// LoadReport: what an instance's reports say of its load.
#pragma once

#include <memory>
#include <string>

#include "cluster/base/clock.h"
#include "cluster/node/inbox.h"
#include "onepiece/v1/node_manager.pb.h"
#include "stages/device/device_meter.h"
#include "stages/instance/idle_work.h"
#include "stages/instance/work_counts.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/result_deliver.h"
#include "stages/runtime/task_manager.h"

namespace onepiece::instance {

/// Measures the time between two reports: the utilisation that a report states is that since the
/// last one.
///
/// Ownership: owns the device's meter. Borrows everything that it is given.
/// Threading: one thread makes the reports.
class LoadReport {
 public:
  /// The parts of the instance that a report reads.
  struct Parts {
    const node::Inbox& inbox;
    const runtime::RequestScheduler& scheduler;
    const runtime::ResultDeliver& deliver;
    const runtime::TaskManager& tasks;
    const IdleWork& idle_work;
    const WorkCounts& counts;
  };

  /// `device` is "cpu" or "cuda:N". `workers` would compute at the same time in individual mode.
  LoadReport(std::string device, int workers, Parts parts, base::Clock& clock);

  v1::NodeLoad Make();

 private:
  /// How many jobs are computed at the same time.
  [[nodiscard]] int Workers() const;
  void AddUtilization(v1::NodeLoad& load);
  void AddDevice(v1::NodeLoad& load);

  const std::string device_;
  const int workers_;
  const Parts parts_;
  base::Clock& clock_;
  const std::unique_ptr<device::DeviceMeter> meter_;  // Null for cpu.
  base::MonotonicTime since_;                         // When the last report was made.
  base::Duration busy_{};                             // Computing time until then.
};

}  // namespace onepiece::instance
