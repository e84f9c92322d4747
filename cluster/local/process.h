// Starts, identifies and ends processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::local {

/// Identifies a process for the life of the host. The system may reuse a pid, so a pid alone does
/// not.
using ProcessId = fabric::PeerIdentity;

/// Returns the running process `pid`. The result has pid 0 when there is none, or only a zombie.
ProcessId Identify(std::int32_t pid);
/// Returns true while `process` runs. A zombie does not run.
bool IsRunning(const ProcessId& process);

enum class Lifetime {
  /// In a process group of its own. It is killed when the thread that spawned it ends
  /// (PR_SET_PDEATHSIG).
  kWithParent,
  kDetached,  ///< In a session of its own.
};

struct SpawnOptions {
  std::vector<std::string> arguments;  ///< arguments[0] is the program's path.
  std::string output_path;             ///< Its stdout and stderr are appended here.
  std::vector<int> keep_fds;           ///< These stay open in the child, under the same numbers.
  Lifetime lifetime = Lifetime::kWithParent;
  /// Removes the ONEPIECE_* variables that configure services, so that only the arguments do.
  bool clean_environment = false;
};

/// Starts a program with stdin from /dev/null and every other descriptor closed. The caller must
/// reap it.
///
/// Errors: NOT_FOUND (no such program), FAILED_PRECONDITION (output_path, fork).
absl::StatusOr<ProcessId> Spawn(const SpawnOptions& options);

/// Sends SIGKILL to a process that is not a child, and waits until it is gone. Returns false when
/// it still runs after `limit`.
bool KillAndWait(const ProcessId& process, base::Duration limit);
/// Waits until `process` is gone. Returns false when it still runs after `limit`.
bool WaitGone(const ProcessId& process, base::Duration limit);

}  // namespace onepiece::local
