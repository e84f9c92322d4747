// Low-priority work that an idle instance lends its time to: a command line in a child process
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
  /// The program (a path, or a name that PATH has) and its arguments; empty: there is no idle work.
  std::vector<std::string> command;
  std::string data_dir;  ///< Of the node.
};

/// Thread-safe. Owns one thread, on which all children are started: they end with it.
class IdleWork {
 public:
  /// Most that Stop blocks for.
  static constexpr base::Duration kGiveBackLimit = std::chrono::milliseconds(500);

  IdleWork(IdleWorkOptions options, base::Clock& clock);
  ~IdleWork();  ///< Ends the child.

  /// The instance is idle: runs the command soon, and again when it ends with an error, after 1 s,
  /// 2 s, … 60 s. What ends with exit code 0 is done until the next Stop and Start. Idempotent;
  /// does not block.
  void Start();
  /// The instance has work: returns when the child is gone. When the system does not let a killed
  /// child go by kGiveBackLimit, returns with a warning in the log; no other is started before it
  /// is gone. Idempotent.
  void Stop();

  /// For NodeLoad.idle_work: "NAME, pid 123", "NAME ended with code 1", "NAME is done"; empty when
  /// it is stopped or there is none.
  [[nodiscard]] std::string status() const;

 private:
  enum class Phase { kStopped, kRunning, kWaiting, kDone };

  void Loop(const std::stop_token& stop);
  /// A child that runs; nullopt when none can, which is tried again later.
  std::optional<LowPriorityChild> Spawn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// The child ended after so long; `wait_status` is that of waitpid.
  void Ended(int wait_status, base::Duration took) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForNextTime(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake() const;

  const IdleWorkOptions options_;
  const std::string name_;
  base::Clock& clock_;
  int wake_fd_ = -1;  // Readable: the child shall end.
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kStopped;
  pid_t pid_ ABSL_GUARDED_BY(mutex_) = -1;   // Of kRunning.
  std::string why_ ABSL_GUARDED_BY(mutex_);  // Of kWaiting.
  base::Duration backoff_ ABSL_GUARDED_BY(mutex_){};
  base::MonotonicTime due_ ABSL_GUARDED_BY(mutex_){};  // Of kWaiting.
  std::jthread thread_;                                // Last: uses all of the above.
};

}  // namespace onepiece::instance
