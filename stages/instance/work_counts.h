// What an instance has done since its process began, for the NodeManager's window
// (docs/elasticity.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"
#include "stages/runtime/work_item.h"

namespace onepiece::instance {

/// How much work the job is in the stage that its header names; 1 when the table does not know it.
double UnitsOf(const node::Routing& table, const message::Message& message);

/// Counts by stage and application. They only grow, and at most kMaxEntries are kept: beyond that
/// nothing new is counted, so that no number ever falls.
/// Threading: Thread-safe.
class WorkCounts {
 public:
  static constexpr std::size_t kMaxEntries = 64;
  /// Of StageLoad.compute_buckets.
  static constexpr int kBuckets = 21;

  /// The job ended here, well or not, or was handed over: then the time that it took here is part
  /// of what jobs cost, though nobody here knows whether it ends, and it counts as a job where it
  /// ends well. One that is cancelled counts nowhere.
  enum class Outcome : std::uint8_t { kDone, kFailed, kHandedOver };
  void Count(const message::Header& header, double units, const runtime::WorkTiming& timing,
             Outcome outcome);
  /// The stage's model for this application was loaded.
  void Loaded(const std::string& stage, const std::string& app, base::Duration time);
  void AddTo(v1::NodeLoad& load) const;

 private:
  // nullptr: too many.
  v1::StageLoad* Entry(const std::string& stage, const std::string& app)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::map<std::pair<std::string, std::string>, v1::StageLoad> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::instance
