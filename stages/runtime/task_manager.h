// TaskManager: gives an instance its stage. Starts task workers for an assignment, tells them which
// models to hold, and stops them for another stage.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/runtime/model_store.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/task_worker.h"

namespace onepiece::runtime {

/// Which stage to serve, for whom, and how.
struct StageAssignment {
  std::string stage;   ///< Empty when the instance is idle.
  std::string plugin;  ///< Plug-in file without suffix.
  /// How every model is loaded. Its model_dir is used only in fused mode, where `models` is empty.
  sdk::LoadOptions load;
  std::vector<AppModel> models;  ///< Applications served, each once.
  int workers = 1;
  /// The devices of the workers, one each. Empty: all have load.device.
  std::vector<std::string> devices;
  std::uint64_t epoch = 0;  ///< The routing epoch of the assignment.
};

enum class TaskState : std::uint8_t { kIdle, kLoading, kServing, kFailed };

/// What is served now.
struct TaskStatus {
  TaskState state = TaskState::kIdle;
  std::uint64_t epoch = 0;        ///< The epoch of the assignment that this status describes.
  std::vector<std::string> apps;  ///< kServing: applications whose models every worker has.
  absl::Status error;             ///< Why applications are missing, or why the state is kFailed.
};

/// Runs the task workers of one instance.
///
/// Threading: thread-safe, but calls of Assign and RetryFailed must not overlap.
class TaskManager {
 public:
  using StageSource = ModelStore::StageSource;
  /// Called with the latest status after every change, on the thread that made the change. Calls do
  /// not overlap.
  using StatusChanged = std::function<void(const TaskStatus& status)>;

  /// Models of earlier assignments stay in memory up to `parked_bytes` (ModelStore).
  TaskManager(StageSource source, RequestScheduler& scheduler, WorkEvents& events,
              StatusChanged changed, base::Clock& clock, std::int64_t parked_bytes = 0);
  ~TaskManager();

  /// Serves `assignment` from now on.
  ///
  /// For another stage, or another way to load it, this waits for items that are being computed,
  /// unloads their models, and loads the new ones in the background. For other applications or
  /// models of the same stage, only those models are unloaded and loaded. The others are served
  /// meanwhile, and the status stays that of the earlier assignment until everything is loaded. The
  /// same assignment changes only the epoch, unless some of its models could not be loaded.
  void Assign(const StageAssignment& assignment);

  /// Retries models that could not be loaded, when a retry is due: a second after the first
  /// failure, then after twice the time, up to a minute. Otherwise it does nothing. Call it
  /// periodically.
  void RetryFailed();
  /// Unloads the models of earlier assignments.
  void DropParked() { store_.DropParked(); }
  [[nodiscard]] ModelStore::Stats parked() const { return store_.stats(); }

  [[nodiscard]] TaskStatus status() const;
  [[nodiscard]] StageAssignment assignment() const;
  /// Returns whether the assignment names this stage for this application.
  [[nodiscard]] bool IsAssigned(const std::string& stage, const std::string& app) const;
  [[nodiscard]] std::vector<base::Uid> running() const;
  /// Returns the longest time that running work has gone without finishing a step.
  [[nodiscard]] base::Duration no_progress() const;
  /// Returns the total computing time of all workers. It includes past assignments and running
  /// work.
  [[nodiscard]] base::Duration busy() const;
  /// Returns the metrics that the loaded stages export. Metrics of the process are returned as they
  /// are; the others are summed over workers and models. Counters never fall, even when stages are
  /// unloaded.
  [[nodiscard]] std::vector<sdk::StageMetric> Metrics();

 private:
  // Keeps a counter growing when stages are unloaded, and when newly loaded ones count from zero.
  struct Counted {
    // Takes what an object of the stage counts now. nullptr: a number of the process.
    void Take(const std::shared_ptr<sdk::Stage>& object, double value);
    double Total();
    // The counts of objects that are gone; the last count of the process; those of the objects that
    // live. A parked object comes back with its count, so it must not count as gone.
    double gone = 0, of_process = 0;
    std::map<std::weak_ptr<sdk::Stage>, double, std::owner_less<std::weak_ptr<sdk::Stage>>> living;
  };

  void ChangeModels(const StageAssignment& assignment);
  void Restart(const StageAssignment& assignment);
  void WorkerLoaded(const TaskWorker::Outcome& outcome);
  void Report();
  // Only Assign changes workers_, so its caller may use them without the lock.
  std::vector<TaskWorker*> Workers() const;

  RequestScheduler& scheduler_;
  WorkEvents& events_;
  const StatusChanged changed_;
  base::Clock& clock_;
  ModelStore store_;
  // Held while changed_ is told, so that the last it hears is the latest.
  base::Mutex report_mutex_;
  mutable base::Mutex mutex_ ABSL_ACQUIRED_AFTER(report_mutex_);
  TaskStatus status_ ABSL_GUARDED_BY(mutex_);
  StageAssignment assignment_ ABSL_GUARDED_BY(mutex_);
  // The number of the assignment. Reports of workers about an earlier one are ignored.
  std::uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  // Workers that have not reported yet how loading went.
  int pending_ ABSL_GUARDED_BY(mutex_) = 0;
  // What all workers that have reported can serve.
  TaskWorker::Outcome gathered_ ABSL_GUARDED_BY(mutex_);
  // Failed attempts in a row to load this assignment.
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
  // When the next retry is due.
  base::MonotonicTime retry_at_ ABSL_GUARDED_BY(mutex_){};
  base::Duration past_busy_ ABSL_GUARDED_BY(mutex_){};
  std::vector<std::unique_ptr<TaskWorker>> workers_ ABSL_GUARDED_BY(mutex_);
  // Keyed by stage and metric.
  std::map<std::pair<std::string, std::string>, Counted> counted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::runtime
