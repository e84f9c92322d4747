// How a replica of the NodeManager runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "nodemanager/paxos/replica.h"

namespace onepiece::nodemanager {

struct ReplicatedLogOptions {
  std::string data_dir;
  /// The name of a new cluster. An existing group must have the same one. Empty allows any.
  std::string cluster_id;
  std::string name;  ///< The name of this replica's seat.
  /// The seats of a new group, and where a replica sends its Join. With none this replica is
  /// alone.
  std::vector<paxos::Seat> seats;
  /// If true, an empty folder begins a new group when none of `seats` has one.
  bool bootstrap = false;
  paxos::ReplicaOptions paxos;  ///< The log fills in name, address and seed.
  base::Duration propose_timeout = std::chrono::seconds(2);
  /// In slots, at least. A large state is written less often: when the log has grown by its size,
  /// or to 16 times as many slots.
  std::uint64_t snapshot_every = 1024;
  /// Called on the log's threads with what they measure, for metrics. They must be short. Null:
  /// nobody asks.
  struct Observers {
    std::function<void(base::Duration)> sync;   ///< One sync of the log on the disk.
    std::function<void(base::Duration)> apply;  ///< Applying what was chosen together.
    /// From a leader's Accept to the answer of the replica in the seat `peer`, its sync included.
    std::function<void(const std::string& peer, base::Duration)> round_trip;
  } observers;
};

}  // namespace onepiece::nodemanager
