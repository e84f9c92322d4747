// TaskManager: gives an instance its stage. Starts task workers for an assignment and stops them
// for the next one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/task_worker.h"

namespace onepiece::runtime {

/// Which stage to serve and how.
struct StageAssignment {
  std::string stage;   ///< Empty: none, the instance is idle.
  std::string plugin;  ///< Plug-in file without suffix.
  sdk::LoadOptions load;
  int workers = 1;
  std::uint64_t epoch = 0;  ///< Routing epoch that made it; says nothing about what is served.
  friend bool operator==(const StageAssignment& a, const StageAssignment& b) {
    return a.stage == b.stage && a.plugin == b.plugin && a.load.device == b.load.device &&
           a.load.model_dir == b.load.model_dir && a.load.threads == b.load.threads &&
           a.workers == b.workers;
  }
};

enum class TaskState : std::uint8_t { kIdle, kLoading, kServing, kFailed };

/// Thread-safe; Assign calls must not overlap.
class TaskManager {
 public:
  /// Finds a plug-in's stage.
  using StageSource = std::function<absl::StatusOr<std::unique_ptr<sdk::Stage>>(
      const std::string& plugin, const std::string& stage)>;
  /// Told of every change, on the thread that made it; `error` is set for kFailed.
  using StateChanged = std::function<void(TaskState state, const absl::Status& error)>;

  TaskManager(StageSource source, RequestScheduler& scheduler, WorkEvents& events,
              StateChanged changed, base::Clock& clock);
  ~TaskManager();

  /// Serves `assignment` from now on: waits for items being computed, unloads, then loads in the
  /// background. The same assignment again changes nothing but its epoch, unless loading it had
  /// failed.
  void Assign(const StageAssignment& assignment);

  [[nodiscard]] TaskState state() const;
  [[nodiscard]] StageAssignment assignment() const;
  [[nodiscard]] std::vector<base::Uid> running() const;
  /// Total computing time of all workers, past assignments included.
  [[nodiscard]] base::Duration busy() const;

 private:
  void WorkerLoaded(std::uint64_t generation, const absl::Status& status);

  const StageSource source_;
  RequestScheduler& scheduler_;
  WorkEvents& events_;
  const StateChanged changed_;
  base::Clock& clock_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  TaskState state_ = TaskState::kIdle;
  StageAssignment assignment_;
  std::uint64_t generation_ = 0;  // Of the assignment: late reports of old workers are ignored.
  int loading_ = 0;
  base::Duration past_busy_{};
  std::vector<std::unique_ptr<TaskWorker>> workers_;
};

}  // namespace onepiece::runtime
