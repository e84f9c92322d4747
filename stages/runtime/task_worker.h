// TaskWorker: one thread that owns one loaded stage and computes the scheduler's items one after
// the other.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "stages/runtime/request_scheduler.h"
#include "stages/runtime/work_item.h"
#include "stages/sdk/stage.h"

namespace onepiece::runtime {

/// The thread creates, loads, runs and unloads the stage, as sdk::Stage asks. Destruction waits for
/// the item that is being computed (it sees no cancellation, only its end), then unloads.
class TaskWorker {
 public:
  using StageFactory = std::function<absl::StatusOr<std::unique_ptr<sdk::Stage>>()>;
  /// Told once, on the worker's thread, how loading went.
  using Loaded = std::function<void(const absl::Status&)>;

  /// `scheduler` and `events` outlive the worker.
  TaskWorker(std::string stage, StageFactory factory, sdk::LoadOptions load,
             RequestScheduler& scheduler, WorkEvents& events, Loaded loaded, base::Clock& clock);
  ~TaskWorker();
  TaskWorker(const TaskWorker&) = delete;
  TaskWorker& operator=(const TaskWorker&) = delete;

  /// Asks the thread to end after the current item; the destructor joins.
  void RequestStop() { thread_.request_stop(); }
  /// The job being computed now.
  [[nodiscard]] std::optional<base::Uid> running() const;
  /// Total time spent in Stage::Run by finished items.
  [[nodiscard]] base::Duration busy() const { return base::Duration(busy_ns_.load()); }

 private:
  void Main(const std::stop_token& stop);
  void Compute(sdk::Stage& stage, WorkItem item);

  const std::string stage_;
  const StageFactory factory_;
  const sdk::LoadOptions load_;
  RequestScheduler& scheduler_;
  WorkEvents& events_;
  const Loaded loaded_;
  base::Clock& clock_;
  std::atomic<std::int64_t> busy_ns_{0};
  mutable std::mutex mutex_;
  std::optional<base::Uid> running_;  // Guarded by mutex_.
  std::jthread thread_;               // Last: starts when everything else is there.
};

}  // namespace onepiece::runtime
