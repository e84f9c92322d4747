// Why a job waits, and how long a job submitted now would wait. Both come from what the instances
// report of their queues.
//
// Threading: pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gui/models/job_query.h"

namespace onepiece::gui {

/// The queue of one stage of an application in one workflow set.
struct StageQueue {
  std::string stage;
  int serving = 0;  ///< Instances that serve the stage.
  int loading = 0;
  int stuck = 0;
  int workers = 0;  ///< Workers of the instances that serve.
  std::int64_t queued = 0;
  double utilization = 0;     ///< Mean over the instances that serve.
  std::uint64_t samples = 0;  ///< Jobs of the application that these instances have computed.
  /// Mean seconds of a worker for one job. Absent if `samples` is below kMinSamples.
  std::optional<double> seconds_per_job;

  /// Seconds until `ahead` jobs are done. Absent if not known, or if no instance serves the stage.
  [[nodiscard]] std::optional<double> wait_s(std::int64_t ahead) const;
};
inline constexpr std::uint64_t kMinSamples = 5;

/// The queues of all stages, in the workflow's order. An empty `set` means all sets together. Empty
/// if the cluster does not know the application.
std::vector<StageQueue> QueuesOf(const session::Snapshot& snapshot, const std::string& set,
                                 const std::string& app);

/// Why a QUEUED job waits: "Waits for diffusion. Older jobs of its set that wait there: 3. …".
/// Empty if it does not wait. `active` is JobArrangement::active.
QString WhyItWaits(const session::Snapshot& snapshot, const v1::Job& job,
                   const std::vector<JobRow>& active, std::int64_t now_ms);

/// What a job submitted now would wait for, and about how long.
QString QueueNow(const session::Snapshot& snapshot, const std::string& app);

}  // namespace onepiece::gui
