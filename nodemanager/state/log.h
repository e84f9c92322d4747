// The seam between the NodeManager and whatever makes its commands durable and agreed on.
#pragma once

#include <cstdint>
#include <functional>

#include "cluster/base/status.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// The only way to change the state: propose(command) → applied result. One replica at a time
/// leads; it alone proposes, and knows that its state is the newest.
///
/// Threading  Thread-safe.
/// Invariant  A command whose Propose() returned a result is durable and has been applied, in one
/// order for all.
class Log {
 public:
  virtual ~Log() = default;
  /// Makes the command durable and applies it. Blocks for the disks of a majority. The result may
  /// itself be a refusal by the state machine (ToStatus). Errors: not applied: UNAVAILABLE
  /// (NOT_LEADER; metadata "leader", host:port, when it is known; OLD_REPLICA: a voter may not know
  /// this kind of command), RESOURCE_EXHAUSTED (LOG_BUSY),
  /// INVALID_ARGUMENT (COMMAND_TOO_LARGE, COMMAND_UNREADABLE); may still be applied, ask again with
  /// the same request id: DEADLINE_EXCEEDED and UNAVAILABLE (OUTCOME_UNKNOWN).
  virtual absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) = 0;
  /// Calls `read` with the state after the last applied command. `read` must be short and must not
  /// propose.
  virtual void Read(const std::function<void(const StateMachine&)>& read) const = 0;
  /// The number of this replica's present leadership; never 0, never used again. Errors:
  /// UNAVAILABLE (NOT_LEADER).
  [[nodiscard]] virtual absl::StatusOr<std::uint64_t> Term() const = 0;
  /// Makes sure that what a Read() between Term() and this call saw was the newest state. Free as
  /// long as this replica holds the lease; else waits for a majority. Errors: those of Propose().
  virtual absl::Status Confirm(std::uint64_t term) = 0;
  /// Asks another replica to lead. Errors: UNAVAILABLE (NOT_LEADER, NO_SUCCESSOR),
  /// DEADLINE_EXCEEDED.
  virtual absl::Status StepDown() = 0;
};

}  // namespace onepiece::nodemanager
