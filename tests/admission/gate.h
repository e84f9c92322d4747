// A request monitor with the helpers that its tests need.
#pragma once

#include <limits>
#include <string>

#include "cluster/admission/request_monitor.h"
#include "cluster/base/status.h"
#include "tests/reason.h"

namespace onepiece::admission {
using namespace std::chrono_literals;

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline std::string Metadata(const absl::Status& status, const std::string& key) {
  const auto metadata = base::GetReason(status).metadata;
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}
inline double RetryS(const absl::Status& status) {
  const std::string text = Metadata(status, "retry_after_ms");
  return text.empty() ? -1 : std::stod(text) / 1000;
}

inline void AddPool(v1::Capacity& capacity, const std::string& pool, int workers,
                    std::int64_t queued = 0) {
  v1::PoolCapacity& added = *capacity.add_pools();
  added.set_pool(pool);
  added.set_instances(workers);
  added.set_workers(workers);
  added.set_queued_jobs(queued);
}
inline void AddCost(v1::Capacity& capacity, const std::string& app, const std::string& stage,
                    double seconds, const std::string& pool = "") {
  v1::StageCost& cost = *capacity.add_costs();
  cost.set_app_id(app);
  cost.set_stage(stage);
  cost.set_pool(pool.empty() ? stage : pool);
  cost.set_seconds_per_unit(seconds);
  cost.set_units_per_job(1);
  cost.set_samples(100);
}
/// The application "app" of stages x and y, each with a pool of its own.
inline v1::Capacity TwoStages(double x, double y, int x_workers = 1, int y_workers = 1) {
  v1::Capacity capacity;
  capacity.set_workflow_set("default");
  capacity.set_share(1);
  AddPool(capacity, "x", x_workers);
  AddPool(capacity, "y", y_workers);
  AddCost(capacity, "app", "x", x);
  AddCost(capacity, "app", "y", y);
  return capacity;
}
inline v1::Capacity OnePool(double seconds, int workers = 1) {
  v1::Capacity capacity;
  capacity.set_share(1);
  AddPool(capacity, "x", workers);
  AddCost(capacity, "app", "x", seconds);
  return capacity;
}

/// A monitor on a clock that the test advances by hand.
struct Gate {
  explicit Gate(const v1::Capacity& capacity, double share = 1, int max_jobs = 1 << 20)
      : monitor({.max_jobs_in_flight = max_jobs, .admission_share = share}, clock) {
    monitor.Update(capacity);
  }
  AdmissionRequest Job(const std::string& tenant = "", double units = 1) {
    AdmissionRequest request;
    request.uid = base::Uid::GenerateRandom();
    request.app_id = "app";
    request.tenant = tenant;
    request.deadline = clock.WallNow() + 24h;
    request.stages = {{"x", units, {}}, {"y", units, {"x"}}};
    return request;
  }
  bool Ask(const std::string& tenant = "", int priority = 0, double units = 1) {
    AdmissionRequest request = Job(tenant, units);
    request.priority = priority;
    return monitor.Admit(request).ok();
  }
  /// Asks once in each `step` and returns how many jobs were admitted.
  int Press(base::Duration time, base::Duration step = 10ms) {
    int admitted = 0;
    for (base::Duration past{}; past < time; past += step) {
      admitted += Ask();
      clock.Advance(step);
    }
    return admitted;
  }
  base::ManualClock clock;
  RequestMonitor monitor;
};

}  // namespace onepiece::admission
