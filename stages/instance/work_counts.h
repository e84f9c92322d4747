// Counts the work that an instance has done since its process began, for the NodeManager's window
// (docs/elasticity.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// How much work a job is in a stage.
struct JobSize {
  double units = 1;           ///< workflow::WorkUnits.
  std::vector<double> terms;  ///< workflow::WorkTerms.
};
/// Returns the size of the job in the stage that its header names; one unit when the table does not
/// know the stage.
JobSize SizeOf(const node::Routing& table, const message::Message& message);

/// Counts by stage and application. The counts only grow. At most kMaxEntries are kept; further
/// stages and applications are not counted, so that no number ever falls.
///
/// Threading: thread-safe.
class WorkCounts {
 public:
  static constexpr std::size_t kMaxEntries = 1024;
  /// The number of StageLoad.compute_buckets.
  static constexpr int kBuckets = 21;

  /// How a job left this instance. The computing time of a job that was handed over is part of the
  /// cost of jobs, but the job itself is counted where it ends. Cancelled jobs are not counted.
  enum class Outcome : std::uint8_t { kDone, kFailed, kHandedOver };
  void Count(const message::Header& header, const JobSize& size, const runtime::WorkTiming& timing,
             Outcome outcome);
  /// Notes how long loading the stage's model for this application took.
  void Loaded(const std::string& stage, const std::string& app, base::Duration time);
  void AddTo(v1::NodeLoad& load) const;

 private:
  // Returns nullptr when there are too many entries.
  v1::StageLoad* Entry(const std::string& stage, const std::string& app)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::map<std::pair<std::string, std::string>, v1::StageLoad> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::instance
