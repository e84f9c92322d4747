// The interface of the replicated log, between the NodeManager and the code that makes commands
// durable and puts them in one order. ReplicatedLog (nodemanager/replication) implements it.
#pragma once

#include <functional>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// The number of a leadership of one replica. Each replica counts its own. The default, 0, means
/// none.
using LeaderTerm = base::Ordinal<struct LeaderTermTag>;

/// The only way to change the state: Propose() takes a command and returns what it did. Only the
/// leader can propose. Any replica can read its own state, which may be old. A read of the newest
/// state takes four steps:
///     term = log.Term();                  // Fails unless this replica leads.
///     log.CatchUp();                      // What others may have seen is applied here.
///     log.Read(…);
///     log.Confirm(term);                  // Fails if what was read may be old.
///
/// Threading: thread-safe.
/// Invariants: a command whose Propose() returned a result is durable and has been applied, in one
/// order for all replicas.
class Log {
 public:
  virtual ~Log() = default;
  /// Makes the command durable, applies it, and returns what it did. An OK status may carry a
  /// refusal by the state machine; ToStatus() tells.
  ///
  /// Blocking: waits for the disks of a majority, at most for
  /// ReplicatedLogOptions::propose_timeout.
  /// Errors: after these the command is not applied: UNAVAILABLE (NOT_LEADER, with metadata
  /// "leader", host:port, when the leader is known; OLD_REPLICA: some voter may not know this kind
  /// of command), FAILED_PRECONDITION (FEATURE_LEVEL: the cluster's level is lower than the command
  /// needs), RESOURCE_EXHAUSTED (LOG_BUSY), INVALID_ARGUMENT (COMMAND_TOO_LARGE,
  /// COMMAND_UNREADABLE). After DEADLINE_EXCEEDED and UNAVAILABLE, both with OUTCOME_UNKNOWN, it
  /// may be applied now or later: propose it again with the same request id, which it must have.
  virtual absl::StatusOr<v1::CommandResult> Propose(const v1::Command& command) = 0;
  /// Called once with what Propose() would have returned, on a thread of the log or of the caller,
  /// while the log holds no lock. It must not block, and must not call Propose(), CatchUp(),
  /// Confirm() or StepDown().
  using Answer = std::function<void(absl::StatusOr<v1::CommandResult>)>;
  /// Does what Propose() does, and returns at once.
  virtual void ProposeAsync(const v1::Command& command, Answer answer) = 0;
  /// Calls `read` with the state after the last applied command, on the caller's thread and under a
  /// lock that keeps commands from being applied. `read` must be short, must not call this Log, and
  /// must not keep the reference.
  virtual void Read(const std::function<void(const StateMachine&)>& read) const = 0;
  /// Returns a number for this replica's present leadership. A later leadership has another
  /// number.
  ///
  /// Errors: UNAVAILABLE (NOT_LEADER).
  [[nodiscard]] virtual absl::StatusOr<LeaderTerm> Term() const = 0;
  /// Waits until the state holds all that this replica knew to be chosen when the call began. Other
  /// replicas may have applied that already, and told somebody.
  ///
  /// Errors: RESOURCE_EXHAUSTED (LOG_BUSY) after ReplicatedLogOptions::propose_timeout, and when
  /// this replica applies nothing any more.
  virtual absl::Status CatchUp() const = 0;
  /// OK means that a Read() between Term() and this call saw every command that had returned a
  /// result before that Read(), and all that any replica had applied when CatchUp() was called.
  /// After an error discard what was read.
  ///
  /// Blocking: returns at once while this replica holds the lease, and otherwise waits for a
  /// majority.
  /// Errors: UNAVAILABLE (NOT_LEADER: the leadership of `term` has ended; OUTCOME_UNKNOWN),
  /// RESOURCE_EXHAUSTED (LOG_BUSY), DEADLINE_EXCEEDED (OUTCOME_UNKNOWN).
  virtual absl::Status Confirm(LeaderTerm term) = 0;
  /// For a replica that follows: waits until its state holds every command that had returned a
  /// result before this call, at whichever replica, and all that any replica had applied then. A
  /// Read() afterwards is linearisable. The default is a log without followers.
  ///
  /// Errors: UNAVAILABLE (NOT_LEADER) when this replica leads, when nobody does, and when the
  /// leader has not answered within ReplicatedLogOptions::propose_timeout; RESOURCE_EXHAUSTED
  /// (LOG_BUSY).
  virtual absl::Status CatchUpWithLeader() {
    return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                           "this replica follows nobody");
  }
  /// Gives up the lead and asks another replica to take it. OK means that this replica no longer
  /// leads; the other may not lead yet.
  ///
  /// Errors: UNAVAILABLE (NOT_LEADER, OUTCOME_UNKNOWN), FAILED_PRECONDITION (NO_SUCCESSOR),
  /// RESOURCE_EXHAUSTED (LOG_BUSY), DEADLINE_EXCEEDED.
  virtual absl::Status StepDown() = 0;
};

}  // namespace onepiece::nodemanager
