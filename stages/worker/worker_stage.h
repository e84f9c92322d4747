// Stages that run in worker processes, one process for each device.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/sdk/stage.h"
#include "stages/worker/worker_process.h"

namespace onepiece::worker {

struct WorkersOptions {
  std::string program = WorkerProcess::DefaultProgram();  ///< Of the processes.
  /// How long a job that nobody wants any more may take to reach the end of its step, before its
  /// process is killed. Scaled.
  base::Duration stop_limit = std::chrono::seconds(30);
};

/// The worker processes of an instance by device. A process runs while any stage is loaded in it.
///
/// Threading: thread-safe.
class Workers {
 public:
  explicit Workers(WorkersOptions options = {}) : options_(std::move(options)) {}
  /// Returns the running process of a device, or a new one.
  ///
  /// Errors: those of WorkerDevice::Parse() and WorkerProcess::Start().
  absl::StatusOr<std::shared_ptr<WorkerProcess>> Get(const std::string& device);
  [[nodiscard]] const WorkersOptions& options() const { return options_; }

 private:
  const WorkersOptions options_;
  base::Mutex mutex_;
  std::map<std::string, std::weak_ptr<WorkerProcess>> running_ ABSL_GUARDED_BY(mutex_);
};

/// Returns stages that run in the worker process of the device that they are loaded for. A run
/// whose process ends or stops answering fails with UNAVAILABLE (runtime::kWorkerLost); the next
/// run starts a process and loads the stage again.
///
/// `plugin_dir`: as for runtime::StagesFromPlugins(). The stages borrow `workers`.
std::unique_ptr<sdk::Stage> StageInWorker(Workers& workers, std::string plugin_dir,
                                          std::string plugin, std::string stage);

}  // namespace onepiece::worker
