// The seam between the NodeManager and what makes its commands durable and agreed on. ReplicatedLog
// (nodemanager/replication) implements it.
#pragma once

#include <cstdint>
#include <functional>

#include "cluster/base/status.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// The only way to change the state: Propose() takes a command and returns what it did. One replica
/// at a time leads. The leader alone proposes, and it knows that its state is the newest.
///
/// A read of the newest state:
///     term = log.Term();                  // Fails unless this replica leads.
///     log.Read(…);
///     log.Confirm(term);                  // Fails if what was read may be old.
///
/// Threading: thread-safe.
/// Invariants: a command whose Propose() returned a result is durable and has been applied, in one
/// order for all replicas.
class Log {
 public:
  virtual ~Log() = default;
  /// Makes the command durable, applies it, and returns what it did. The result may itself be a
  /// refusal by the state machine (ToStatus).
  ///
  /// Blocking: waits for the disks of a majority.
  /// Errors: the command is not applied after UNAVAILABLE (NOT_LEADER, with metadata "leader",
  /// host:port, when the leader is known; OLD_REPLICA when a voter may not know this kind of
  /// command), RESOURCE_EXHAUSTED (LOG_BUSY) and INVALID_ARGUMENT (COMMAND_TOO_LARGE,
  /// COMMAND_UNREADABLE). It may still be applied after DEADLINE_EXCEEDED and UNAVAILABLE (both
  /// OUTCOME_UNKNOWN): retry with the same request id.
  virtual absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) = 0;
  /// Calls `read` with the state after the last applied command. `read` must be short and must not
  /// propose.
  virtual void Read(const std::function<void(const StateMachine&)>& read) const = 0;
  /// Returns the number of this replica's present leadership. It is never 0, and no later
  /// leadership of this object has the same number.
  /// Errors: UNAVAILABLE (NOT_LEADER).
  [[nodiscard]] virtual absl::StatusOr<std::uint64_t> Term() const = 0;
  /// Returns OK when a Read() between Term() and this call saw the newest state.
  ///
  /// Blocking: returns at once while this replica holds the lease, and otherwise waits for a
  /// majority.
  /// Errors: those of Propose().
  virtual absl::Status Confirm(std::uint64_t term) = 0;
  /// Asks another replica to lead.
  /// Errors: UNAVAILABLE (NOT_LEADER), FAILED_PRECONDITION (NO_SUCCESSOR), DEADLINE_EXCEEDED.
  virtual absl::Status StepDown() = 0;
};

}  // namespace onepiece::nodemanager
