// One child process of the lowest priority: nice 19, SCHED_IDLE, and the first to be killed when
// memory runs out. It dies with the thread that started it (PR_SET_PDEATHSIG). Private to
// stages/instance.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"

namespace onepiece::instance {

/// A running child.
///
/// Threading: Spawn, Tend and destruction happen on one thread.
class LowPriorityChild {
 public:
  /// How long the child may take to end by itself.
  static constexpr base::Duration kTermLimit = std::chrono::milliseconds(300);
  static constexpr std::int64_t kLogBytes = 1 << 20;

  /// Starts `command` (a path, or a name found in PATH, and its arguments) in `folder`, as a
  /// process group of its own.
  ///
  /// Errors: NOT_FOUND (no such program), FAILED_PRECONDITION (the folder cannot be made),
  /// RESOURCE_EXHAUSTED (no more processes).
  static absl::StatusOr<LowPriorityChild> Spawn(const std::vector<std::string>& command,
                                                const std::string& folder);
  LowPriorityChild(LowPriorityChild&& other) noexcept;
  LowPriorityChild& operator=(LowPriorityChild&&) = delete;
  ~LowPriorityChild();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Waits for the child's end and returns the status of waitpid. Writes the child's output to
  /// `folder`/log; when that reaches kLogBytes, it becomes log.old. When `wake_fd` becomes
  /// readable, ends the child: SIGTERM to its group, and SIGKILL kTermLimit later.
  ///
  /// REQUIRES: called once.
  int Tend(int wake_fd);

 private:
  LowPriorityChild(pid_t pid, int pid_fd, int output, std::string folder)
      : pid_(pid), pid_fd_(pid_fd), output_(output), folder_(std::move(folder)) {}
  bool WaitAndLog(int wake_fd, std::optional<base::MonotonicTime> until);
  void Log();

  pid_t pid_ = -1;
  int pid_fd_ = -1, output_ = -1, log_ = -1;
  std::string folder_;
};

}  // namespace onepiece::instance
