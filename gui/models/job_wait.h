// Why a job waits, and how long one would that is submitted now: from what the cluster's instances
// say of their queues.
//
// Threading  Pure functions.
#pragma once

#include <QString>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gui/models/job_query.h"

namespace onepiece::gui {

/// What stands before one stage of an application, in one workflow set.
struct StageQueue {
  std::string stage;
  int serving = 0;  ///< Instances.
  int loading = 0;
  int stuck = 0;
  int workers = 0;  ///< Of those that serve.
  std::int64_t queued = 0;
  double utilization = 0;     ///< Mean of those that serve.
  std::uint64_t samples = 0;  ///< Jobs of the application that they have computed.
  /// What one job costs a worker, on average; absent with fewer than kMinSamples.
  std::optional<double> seconds_per_job;

  /// How long the queue takes; absent: not known, or nobody serves it.
  [[nodiscard]] std::optional<double> wait_s(std::int64_t ahead) const;
};
inline constexpr std::uint64_t kMinSamples = 5;

/// The stages in the workflow's order; none: the cluster does not know the application. `set`
/// empty: all sets together.
std::vector<StageQueue> QueuesOf(const Snapshot& snapshot, const std::string& set,
                                 const std::string& app);

/// For a job that is QUEUED: "Waits for diffusion, 3 jobs of its set before it. …". Empty: it does
/// not wait. `active` is JobArrangement::active.
QString WhyItWaits(const Snapshot& snapshot, const v1::Job& job, const std::vector<JobRow>& active,
                   std::int64_t now_ms);

/// For a job that may be submitted: what stands before its stages, and about how long that takes.
QString QueueNow(const Snapshot& snapshot, const std::string& app);

}  // namespace onepiece::gui
