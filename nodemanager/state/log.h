// The seam between the NodeManager and whatever makes its commands durable and agreed on.
#pragma once

#include <functional>

#include "cluster/base/status.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// The only way to change the state: propose(command) → applied result. Consensus comes behind this
/// interface.
///
/// Threading  Thread-safe.
/// Invariant  A command whose Propose() returned a result is durable and has been applied, in one
/// order for all.
class Log {
 public:
  virtual ~Log() = default;
  /// Makes the command durable and applies it. Blocks for the disk (later: for a quorum). The
  /// result may itself be a refusal by the state machine (ToStatus). Errors: UNAVAILABLE
  /// (LOG_BROKEN, DISK_FULL): not applied.
  virtual absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) = 0;
  /// Calls `read` with the state after the last applied command. `read` must be short and must not
  /// propose.
  virtual void Read(const std::function<void(const StateMachine&)>& read) const = 0;
};

}  // namespace onepiece::nodemanager
