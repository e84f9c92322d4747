// The yardstick: the same ledger, load of results and schedule of faults, with two Redis servers as
// the store of announced results. Needs hiredis.
//
// What stands for OnePiece's parts:
//   - Two redis-server, a primary and its replica (appendonly yes, appendfsync everysec, no RDB;
//     all else as Redis has it), are the two databases.
//   - A producer delivers as an instance does: it sets the result, then the job's end with SET NX,
//     and repeats what had no answer for 15 s. With `wait` it then asks for WAIT 1, and repeats
//     until the replica has both. Only then is the job announced. A client that cancels sets
//     CANCELLED with SET NX before, and the producer delivers all the same, as an instance that
//     has not heard of it yet.
//   - kill_database kills with SIGKILL. By an even die the server's supervisor starts it again from
//     its AOF after 200 ms, as that of OnePiece does. By an odd one its machine stays away for 5 s.
//     stop_database stops the server for the same time as a database of OnePiece.
//   - The operator's script asks the primary for a PING every 500 ms, and waits as long for the
//     answer. When three are missing one after another, and the replica answers, it promotes the
//     replica with REPLICAOF NO ONE, and tells all clients of the new primary at once. A former
//     primary that answers again becomes the replica with REPLICAOF, which gives up what it had
//     alone.
// The rules of ledger_run.h hold: no server suffers before the replica is in sync again, and a
// fault that finds nothing announced and unfetched makes the run blind.
#pragma once

#include "absl/status/statusor.h"
#include "tests/chaos/ledger_run.h"

namespace onepiece::ledger {

/// The faults are those of databases: kill_database, stop_database.
///
/// Blocking: as Run().
/// Errors: INVALID_ARGUMENT (BAD_FAULT), those of starting a server.
absl::StatusOr<RunReport> RunRedis(const RunOptions& options, bool wait);

}  // namespace onepiece::ledger
