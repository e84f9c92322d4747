#include "stages/instance/assignment_taker.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "stages/instance/model_folder.h"

namespace onepiece::instance {
namespace {

// How long the work that the instance holds may take when it leaves a workflow set without having
// been drained, and how often it looks.
constexpr auto kLeaveSetLimit = std::chrono::seconds(60);
constexpr auto kLeaveSetPoll = std::chrono::milliseconds(10);

absl::Status BadPlan(const sdk::ParallelPlan& plan, int workers) {
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "BAD_PLAN",
      absl::StrCat("the stage's jobs need cfg=", plan.cfg, " x sequence=", plan.sequence, " = ",
                   plan.ranks(), " workers, and this instance has ", workers,
                   ": set `devices` of the instance, or `parallel` of the stage"));
}

/// One worker, which computes each job on all devices.
void Collaborate(const v1::StageSpec& spec, const v1::InstanceConfig& config,
                 runtime::StageAssignment& next) {
  const int workers = std::max(1, config.devices_size());
  if (spec.has_parallel()) {
    next.load.plan = sdk::ParallelPlan{.cfg = std::max(1, spec.parallel().cfg()),
                                       .sequence = std::max(1, spec.parallel().sequence())};
    if (next.load.plan->ranks() != workers) {
      for (runtime::AppModel& model : next.models)
        model.refused.Update(BadPlan(*next.load.plan, workers));
    }
  }
  if (config.devices_size() > 0) next.load.device = absl::StrJoin(config.devices(), ",");
  next.devices.clear();
  next.workers = 1;
}

}  // namespace

runtime::StageAssignment StageOf(const v1::Assignment& assignment,
                                 const v1::InstanceConfig& config) {
  const auto& spec = assignment.stage();
  runtime::StageAssignment next;
  next.stage = spec.stage();
  next.plugin = spec.plugin();
  next.load.device = config.device();
  next.load.threads = std::max(1, spec.threads());
  if (!spec.precision().empty()) next.load.precision = spec.precision();
  for (int i = 0; i < assignment.app_ids_size(); ++i) {
    // A NodeManager that knows only one model per stage names it in the stage.
    const auto& model = i < assignment.models_size() ? assignment.models(i) : spec.model();
    absl::StatusOr<std::string> folder = FindModel(config, model);
    next.models.push_back({.app = assignment.app_ids(i),
                           .model_dir = folder.ok() ? *std::move(folder) : model,
                           .refused = folder.status()});
  }
  next.workers = config.workers();
  next.devices = {config.devices().begin(), config.devices().end()};
  if (spec.mode() == v1::MODE_COLLABORATION) Collaborate(spec, config, next);
  next.epoch = assignment.epoch();
  return next;
}

void AssignmentTaker::Assign(const v1::Assignment& assignment) {
  const base::MutexLock lock(mutex_);
  if (parts_.leaving) return;
  const bool idle =
      assignment.stage().stage().empty() && !assignment.draining() && !assignment.removed();
  // This comes first: idle work must have given its memory back before a model is loaded.
  if (!idle) parts_.idle_work.Stop();
  const std::string& set =
      assignment.workflow_set().empty() ? config_.node().workflow_set() : assignment.workflow_set();
  // The agent keeps the routing of the old set until this call returns, so that jobs of the old set
  // still find their way.
  if (set != parts_.publisher.workflow_set()) LeaveSet(assignment.epoch());
  parts_.publisher.SetWorkflowSet(set);
  if (assignment.draining()) {
    parts_.drain.Begin(assignment.epoch());
  } else {
    parts_.drain.End();
  }
  // The drain is set before: whatever this reports then carries the state of this assignment's
  // drain, not of the last one's.
  parts_.tasks.Assign(StageOf(assignment, config_));
  if (assignment.removed()) parts_.tasks.DropParked();
  if (idle) parts_.idle_work.Start();
  parts_.publisher.SetLeavingSet(false);
  parts_.publisher.Publish();
}

// Waits until nothing of the workflow set is left, fails the rest, and remembers the set.
void AssignmentTaker::LeaveSet(std::uint64_t epoch) {
  parts_.publisher.SetLeavingSet(true);
  parts_.publisher.Publish();
  parts_.drain.Begin(epoch);
  const auto until = parts_.clock.Now() + base::Scaled(kLeaveSetLimit);
  // The upkeep thread looks at the drain meanwhile. Pending reports count too: they go to the
  // databases of the old set, which this node cannot find once it follows the new one. So does kept
  // work, which goes to the instances of the old set.
  while (!parts_.leaving && parts_.clock.Now() < until &&
         (!parts_.drain.drained() || parts_.reporter.pending() > 0 || parts_.kept.items() > 0))
    parts_.clock.Pause({}, kLeaveSetPoll);
  std::vector<runtime::WorkItem> late =
      parts_.scheduler.TakeJoins([](const message::Header&) { return true; });
  while (auto item = parts_.scheduler.Take()) late.push_back(*std::move(item));
  // This is the last chance to keep the old table: the agent drops it when Assign returns.
  auto former = std::make_shared<FormerSet>(parts_.view.routing(), parts_.clock);
  for (const auto& item : late) former->Fail(item, config_.node().node_id());
  parts_.former_set.Replace(std::move(former));
}

void AssignmentTaker::RetryFailedModels() {
  // The upkeep thread calls this and must not wait here: LeaveSet holds the lock and waits for that
  // thread to see the drain through.
  if (!mutex_.TryLock()) return;
  const base::MutexLock lock(mutex_, std::adopt_lock);
  parts_.tasks.RetryFailed();
}

void AssignmentTaker::Release() {
  const base::MutexLock lock(mutex_);
  parts_.idle_work.Stop();
  parts_.tasks.Assign({});
}

}  // namespace onepiece::instance
