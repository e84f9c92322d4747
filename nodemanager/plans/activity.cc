#include <algorithm>

#include "nodemanager/plans/plans.h"

namespace onepiece::nodemanager {
namespace {

// A step is suspicious after a minute, if it has also taken as long as three whole jobs.
constexpr double kStuckAfterS = 60, kStuckAfterJobs = 3;
// This time counts before the first job has ended, because nobody knows how long a job takes.
constexpr double kStuckUnmeasuredS = 600;

bool IsStuck(const v1::NodeLoad& load) {
  double slowest_s = 0;
  bool measured = false;
  for (const v1::StageLoad& stage : load.stages()) {
    if (stage.jobs() == 0) continue;
    measured = true;
    slowest_s = std::max(slowest_s, stage.compute_s() / static_cast<double>(stage.jobs()));
  }
  return static_cast<double>(load.no_progress_ms()) / 1000 >
         (measured ? std::max(kStuckAfterS, kStuckAfterJobs * slowest_s) : kStuckUnmeasuredS);
}

}  // namespace

v1::Activity ActivityOf(const v1::NodeRecord& record, const v1::NodeLoad* load) {
  const v1::Node& node = record.node();
  const v1::Assignment& assignment = node.assignment();
  if (node.role() != v1::INSTANCE || !IsAlive(node)) return v1::ACTIVITY_UNSPECIFIED;
  if (record.load_failed()) return v1::QUARANTINED;
  if (assignment.draining()) return record.drained() ? v1::DRAINED : v1::DRAINING;
  // An instance is safe to remove only after it has said that it holds nothing.
  const bool holds = load == nullptr || load->held_jobs() > 0 || load->ring_slots_used() > 0;
  if (assignment.removed()) return holds ? v1::DRAINING : v1::DRAINED;
  if (!assignment.has_stage()) return v1::IDLE;
  if (load != nullptr && IsStuck(*load)) return v1::STUCK;
  return ServedApps(record).empty() ? v1::LOADING : v1::SERVING;
}

}  // namespace onepiece::nodemanager
