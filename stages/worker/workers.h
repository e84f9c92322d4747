// The worker processes of an instance.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/worker/worker_process.h"

namespace onepiece::worker {

/// Which stage.
struct StageName {
  std::string plugin_dir;  ///< As for runtime::StagesFromPlugins().
  std::string plugin;
  std::string stage;
};

struct WorkersOptions {
  std::string program = WorkerProcess::DefaultProgram();  ///< Of the processes.
  /// The name of the shared memory through which the workers of a group speak: that of the cluster.
  std::string shared_memory = "onepiece-workers";
  /// How long a job that nobody wants any more may take to reach the end of its step, before its
  /// process is killed. Scaled.
  base::Duration stop_limit = std::chrono::seconds(30);
  /// How long a worker of a group waits for the others in one collective call. Scaled.
  base::Duration rank_timeout = std::chrono::seconds(60);
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

}  // namespace onepiece::worker
