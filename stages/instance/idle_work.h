// Low-priority work for the time in which an instance is idle: a command line in a child process
// (low_priority_child.h) with the folder DATA_DIR/idle-work.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "stages/instance/low_priority_child.h"

namespace onepiece::instance {

struct IdleWorkOptions {
  /// The program (a path, or a name found in PATH) and its arguments. Empty: no idle work.
  std::vector<std::string> command;
  std::string data_dir;  ///< The node's data directory.
};

/// Runs the command while the instance is idle.
///
/// Ownership: owns one thread, which starts all children. They end with it.
/// Threading: thread-safe.
class IdleWork {
 public:
  /// How long Stop blocks at most.
  static constexpr base::Duration kGiveBackLimit = std::chrono::milliseconds(500);

  IdleWork(IdleWorkOptions options, base::Clock& clock);
  ~IdleWork();  ///< Ends the child.

  /// The instance is idle. Runs the command soon, and restarts it after an error, with a backoff of
  /// 1 s, 2 s, … 60 s. A command that ends with exit code 0 is done until the next Stop and Start.
  /// Idempotent. Does not block.
  void Start();
  /// The instance has work. Ends the child and returns when it is gone. If a killed child is not
  /// gone by kGiveBackLimit, it returns with a warning in the log, and no other child is started
  /// before that one is gone. Idempotent.
  void Stop();

  /// Returns the text for NodeLoad.idle_work: "NAME, pid 123", "NAME ended with code 1" or "NAME is
  /// done"; empty when idle work is stopped or there is none.
  [[nodiscard]] std::string status() const;

 private:
  enum class Phase { kStopped, kRunning, kWaiting, kDone };

  void Loop(const std::stop_token& stop);
  /// Starts the child. Returns nullopt when that fails; Loop() tries again later.
  std::optional<LowPriorityChild> Spawn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Notes that the child has ended after `took`; `wait_status` is that of waitpid.
  void Ended(int wait_status, base::Duration took) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForNextTime(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake() const;

  const IdleWorkOptions options_;
  const std::string name_;
  base::Clock& clock_;
  int wake_fd_ = -1;  // It becomes readable when the child must end.
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kStopped;
  pid_t pid_ ABSL_GUARDED_BY(mutex_) = -1;   // Valid while kRunning.
  std::string why_ ABSL_GUARDED_BY(mutex_);  // Valid while kWaiting.
  base::Duration backoff_ ABSL_GUARDED_BY(mutex_){};
  base::MonotonicTime due_ ABSL_GUARDED_BY(mutex_){};  // Of kWaiting.
  std::jthread thread_;                                // Last: uses all of the above.
};

}  // namespace onepiece::instance
