// More nodes than this machine has room for, in simulation.
#pragma once

#include <cstddef>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::bench {

/// What a simulation of many nodes measures.
struct SimulatedNumbers {
  std::vector<double> watch_s;  ///< From a proposal to the last stream's message, each change.
  std::vector<double> death_s;  ///< From a node's end, with new assignments, to the last message.
  double bytes = 0;             ///< All messages of one change together.
  double table_bytes = 0;       ///< A whole table.
  double join_s = 0;            ///< All registrations, assignments and first reports.
  double propose_s = 0;         ///< A node's end, until the assignments follow it; the median.
  double node_apply_s = 0;      ///< What each node needs to take a change in; the median.
};

/// Simulates a leader with `nodes` nodes in this process. Real are the state machine, the
/// controller with its assigner, the service with all its streams, and gRPC. Simulated are the
/// nodes, which only read their streams, the network, which is gRPC's in-process transport, and
/// consensus, which is a log in memory.
///
/// Errors: CANCELLED, DEADLINE_EXCEEDED.
absl::StatusOr<SimulatedNumbers> Simulate(std::size_t nodes, int changes,
                                          const std::stop_token& stop);

}  // namespace onepiece::bench
