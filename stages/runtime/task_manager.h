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
  std::string stage;   ///< Empty: none, the instance is idle.
  std::string plugin;  ///< Plug-in file without suffix.
  /// How every model is loaded; its model_dir counts in fused mode only, where `models` is empty.
  sdk::LoadOptions load;
  std::vector<AppModel> models;  ///< Applications served, each once.
  int workers = 1;
  std::uint64_t epoch = 0;  ///< Routing epoch that made it; says nothing about what is served.
};

enum class TaskState : std::uint8_t { kIdle, kLoading, kServing, kFailed };

/// What is served now.
struct TaskStatus {
  TaskState state = TaskState::kIdle;
  std::uint64_t epoch = 0;        ///< Of the assignment that the rest is about.
  std::vector<std::string> apps;  ///< kServing: applications whose models every worker has.
  absl::Status error;             ///< Why applications are missing, or kFailed.
};

/// Thread-safe; calls of Assign and RetryFailed must not overlap.
class TaskManager {
 public:
  using StageSource = ModelStore::StageSource;
  /// Told the latest status after every change, on the thread that made it, one call at a time.
  using StatusChanged = std::function<void(const TaskStatus& status)>;

  /// Models of earlier assignments stay in memory up to `parked_bytes` (ModelStore).
  TaskManager(StageSource source, RequestScheduler& scheduler, WorkEvents& events,
              StatusChanged changed, base::Clock& clock, std::int64_t parked_bytes = 0);
  ~TaskManager();

  /// Serves `assignment` from now on. Another stage, or other ways to load it: waits for items
  /// being computed, unloads, then loads in the background. Other applications or models of the
  /// same stage: only those models are unloaded and loaded, the others go on being served, and the
  /// status stays that of the earlier assignment until all is loaded. The same assignment again
  /// changes nothing but its epoch, unless loading some of it had failed.
  void Assign(const StageAssignment& assignment);

  /// Tries again to load what could not be loaded, once its time has come: a second after the first
  /// failure, doubled with every other up to a minute. Cheap otherwise: call it now and then.
  void RetryFailed();
  /// Unloads the models of earlier assignments.
  void DropParked() { store_.DropParked(); }
  [[nodiscard]] ModelStore::Stats parked() const { return store_.stats(); }

  [[nodiscard]] TaskStatus status() const;
  [[nodiscard]] StageAssignment assignment() const;
  /// Whether the assignment names this stage for this application.
  [[nodiscard]] bool IsAssigned(const std::string& stage, const std::string& app) const;
  [[nodiscard]] std::vector<base::Uid> running() const;
  /// How long the work being computed has finished no step, at most.
  [[nodiscard]] base::Duration no_progress() const;
  /// Total computing time of all workers, past assignments and what runs now included.
  [[nodiscard]] base::Duration busy() const;
  /// The numbers that the loaded stages export: those of the process as they are, the others added
  /// up over workers and models. Counters never fall, whatever is unloaded.
  [[nodiscard]] std::vector<sdk::StageMetric> Metrics();

 private:
  // What a counter was, to go on from when it begins anew.
  struct Counted {
    double before = 0, last = 0;
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
  // Of the assignment: late reports of workers are ignored.
  std::uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  // Workers that have not said how loading went.
  int pending_ ABSL_GUARDED_BY(mutex_) = 0;
  // What those that have said can all serve.
  TaskWorker::Outcome gathered_ ABSL_GUARDED_BY(mutex_);
  // Of loading this assignment, one after the other.
  int failures_ ABSL_GUARDED_BY(mutex_) = 0;
  // After the last of them.
  base::MonotonicTime retry_at_ ABSL_GUARDED_BY(mutex_){};
  base::Duration past_busy_ ABSL_GUARDED_BY(mutex_){};
  std::vector<std::unique_ptr<TaskWorker>> workers_ ABSL_GUARDED_BY(mutex_);
  // By stage and metric.
  std::map<std::pair<std::string, std::string>, Counted> counted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::runtime
