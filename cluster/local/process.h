// Child processes: start, identify, end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::local {

/// Names a process for the life of the host: a pid alone may be reused.
using ProcessId = fabric::PeerIdentity;

/// The running process `pid`; pid 0 in the result when there is none (or only a zombie).
ProcessId Identify(std::int32_t pid);
/// `process` still runs (a zombie does not).
bool IsRunning(const ProcessId& process);

enum class Lifetime {
  kWithParent,  ///< Killed when the thread that spawned it ends (PR_SET_PDEATHSIG); its own process
                ///< group.
  kDetached,    ///< A session of its own.
};

struct SpawnOptions {
  std::vector<std::string> arguments;  ///< arguments[0] is the program's path.
  std::string output_path;             ///< stdout and stderr are appended here.
  std::vector<int> keep_fds;           ///< Stay open in the child under the same numbers.
  Lifetime lifetime = Lifetime::kWithParent;
  /// Remove ONEPIECE_* variables that configure services, so that only the arguments do.
  bool clean_environment = false;
};

/// Starts a program with stdin from /dev/null and every other descriptor closed. The caller reaps
/// it. Errors: NOT_FOUND (no such program), FAILED_PRECONDITION (output_path), RESOURCE_EXHAUSTED
/// (fork).
absl::StatusOr<ProcessId> Spawn(const SpawnOptions& options);

/// Sends SIGKILL to a process that is not a child and waits until it is gone. False when it is not,
/// by `limit`.
bool KillAndWait(const ProcessId& process, base::Duration limit);
/// Waits until `process` is gone; false when it still runs after `limit`.
bool WaitGone(const ProcessId& process, base::Duration limit);

}  // namespace onepiece::local
