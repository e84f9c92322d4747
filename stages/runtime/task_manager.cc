#include "stages/runtime/task_manager.h"

#include <utility>

namespace onepiece::runtime {

TaskManager::TaskManager(StageSource source, RequestScheduler& scheduler, WorkEvents& events,
                         StateChanged changed, base::Clock& clock)
    : source_(std::move(source)),
      scheduler_(scheduler),
      events_(events),
      changed_(std::move(changed)),
      clock_(clock) {}

TaskManager::~TaskManager() { Assign({}); }

void TaskManager::Assign(const StageAssignment& assignment) {
  std::vector<std::unique_ptr<TaskWorker>> old;
  {
    const std::lock_guard lock(mutex_);
    if (assignment == assignment_ && state_ != TaskState::kFailed) {
      assignment_.epoch = assignment.epoch;
      return;
    }
    old = std::move(workers_);
    workers_.clear();
    ++generation_;
  }
  for (auto& worker : old) worker->RequestStop();
  base::Duration busy{};
  for (auto& worker : old) {
    busy += worker->busy();
    worker.reset();  // Joins: the old weights are gone before the new ones are loaded.
  }
  TaskState state = assignment.stage.empty() ? TaskState::kIdle : TaskState::kLoading;
  {
    const std::lock_guard lock(mutex_);
    past_busy_ += busy;
    assignment_ = assignment;
    state_ = state;
    loading_ = state == TaskState::kIdle ? 0 : assignment.workers;
  }
  changed_(state, absl::OkStatus());
  if (state == TaskState::kIdle) return;

  std::vector<std::unique_ptr<TaskWorker>> workers;
  for (int i = 0; i < assignment.workers; ++i) {
    workers.push_back(std::make_unique<TaskWorker>(
        assignment.stage,
        [this, assignment] { return source_(assignment.plugin, assignment.stage); },
        assignment.load, scheduler_, events_,
        [this, generation = generation_](const absl::Status& status) {
          WorkerLoaded(generation, status);
        },
        clock_));
  }
  const std::lock_guard lock(mutex_);
  workers_ = std::move(workers);
}

void TaskManager::WorkerLoaded(std::uint64_t generation, const absl::Status& status) {
  TaskState state;
  {
    const std::lock_guard lock(mutex_);
    if (generation != generation_ || state_ == TaskState::kFailed) return;
    if (!status.ok()) {
      state_ = TaskState::kFailed;
    } else if (--loading_ == 0) {
      state_ = TaskState::kServing;
    } else {
      return;
    }
    state = state_;
  }
  changed_(state, status);
}

TaskState TaskManager::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

StageAssignment TaskManager::assignment() const {
  const std::lock_guard lock(mutex_);
  return assignment_;
}

std::vector<base::Uid> TaskManager::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<base::Uid> uids;
  for (const auto& worker : workers_) {
    if (const auto uid = worker->running()) uids.push_back(*uid);
  }
  return uids;
}

base::Duration TaskManager::busy() const {
  const std::lock_guard lock(mutex_);
  base::Duration total = past_busy_;
  for (const auto& worker : workers_) total += worker->busy();
  return total;
}

}  // namespace onepiece::runtime
