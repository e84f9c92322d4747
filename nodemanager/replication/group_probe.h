// Asks seats whether there is a group already.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/replication/log_options.h"
#include "onepiece/v1/consensus.pb.h"

namespace onepiece::nodemanager {

struct SeatAnswer {
  paxos::Seat seat;
  absl::StatusOr<v1::ReplicaStatus> status;
};

/// Asks the replica at the address of each seat, all at the same time.
///
/// Threading: thread-safe.
/// Blocking: for one second at most.
std::vector<SeatAnswer> AskSeats(const std::vector<paxos::Seat>& seats);

/// What the others said: that there is a group to join, or else for whom a new group has to wait.
struct GroupProbe {
  bool have_group = false;  ///< There is a group to join.
  std::string waits_for;    ///< The seats for which a new group has to wait, and why.
};

/// Asks every other seat of `options` at the same time.
///
/// Threading: thread-safe.
/// Blocking: for one second at most.
GroupProbe ProbeGroup(const ReplicatedLogOptions& options);

}  // namespace onepiece::nodemanager
