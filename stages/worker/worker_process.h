// A worker process: computes stages on one device, for one instance. Where it ends, the instance
// goes on.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "stages/worker/packet_socket.h"

namespace onepiece::worker {

/// What the stage of a worker sees, and where it runs.
struct WorkerDevice {
  std::string name;        ///< As configured: "cuda:1", "cpu", "cpu:3".
  std::string stage_name;  ///< As the stage knows it: "cuda:1", "cpu".
  int core = -1;           ///< The only core that it runs on; -1: any.

  /// Errors: INVALID_ARGUMENT (BAD_DEVICE: no such name, or a core that this process may not use).
  static absl::StatusOr<WorkerDevice> Parse(const std::string& name);
};

/// A running worker process.
///
/// Ownership: its destructor kills the process and waits for its end. The process also ends when
/// the one that started it does.
/// Threading: thread-safe.
class WorkerProcess {
 public:
  /// Returns the program: onepiece-worker beside the running one.
  static std::string DefaultProgram();
  /// Errors: NOT_FOUND (no such program), RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::shared_ptr<WorkerProcess>> Start(const std::string& program,
                                                              const WorkerDevice& device);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Returns a socket to a stage of its own in the process.
  ///
  /// Errors: UNAVAILABLE (runtime::kWorkerLost), RESOURCE_EXHAUSTED.
  absl::StatusOr<PacketSocket> OpenStage();
  [[nodiscard]] bool alive();
  /// Says how the process ended: "signal 9", "exit status 1". Waits a moment for the end of one
  /// whose socket is closed, and kills one that does not answer any more.
  std::string Ending();
  void Kill();
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const WorkerDevice& device() const { return device_; }

 private:
  WorkerProcess(pid_t pid, PacketSocket control, WorkerDevice device)
      : pid_(pid), device_(std::move(device)), control_(std::move(control)) {}
  bool ReapLocked(bool wait) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const pid_t pid_;
  const WorkerDevice device_;
  base::Mutex mutex_;
  PacketSocket control_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  int status_ ABSL_GUARDED_BY(mutex_) = 0;  // Of waitpid.
};

}  // namespace onepiece::worker
