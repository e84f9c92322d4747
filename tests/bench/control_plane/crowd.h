// All light nodes, in a few processes.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/local/process.h"
#include "tests/bench/control_plane/fleet.h"

namespace onepiece::bench {

/// Threading: thread-confined; the processes end with the thread that started them.
class Crowd {
 public:
  static constexpr std::size_t kNodesPerProcess = 250;

  /// Starts `nodes` nodes of a group. Their processes log to `dir`. Once `stop` is requested, calls
  /// under way and later calls end with CANCELLED.
  ///
  /// Errors: those of local::Spawn.
  static absl::StatusOr<std::unique_ptr<Crowd>> Start(FleetKind kind, std::size_t nodes,
                                                      const std::vector<std::string>& addresses,
                                                      const std::string& dir, std::stop_token stop);
  /// Kills the processes.
  ~Crowd();

  [[nodiscard]] std::size_t nodes() const { return nodes_; }
  /// Waits until every node's table has `version`. Returns when the last one had it.
  ///
  /// Errors: DEADLINE_EXCEEDED, which counts the nodes without it and says what one of them
  /// complains about. UNAVAILABLE when a process has ended.
  absl::StatusOr<base::MonotonicTime> WaitForTables(std::int64_t version, base::Duration limit);
  /// Waits until every node has an answer to a heartbeat that it sent after `since`. For etcd's.
  absl::StatusOr<base::MonotonicTime> WaitForHeartbeats(base::MonotonicTime since,
                                                        base::Duration limit);

 private:
  struct Process {
    local::ProcessId id;
    int to = -1, from = -1;  ///< The pipes.
    std::string heard;       ///< The part of a line that has come.
  };
  struct Answer {
    base::MonotonicTime last;
    std::size_t missing = 0;
    std::string complaint;
  };

  Crowd(std::size_t nodes, std::string dir, std::stop_token stop)
      : nodes_(nodes), dir_(std::move(dir)), stop_(std::move(stop)) {}
  absl::Status StartProcess(const FleetPlan& plan);
  /// Asks all processes at the same time, and joins their answers.
  absl::StatusOr<Answer> Ask(const std::string& what, std::int64_t version, base::Duration limit);
  absl::StatusOr<std::string> ReadLine(Process& process, base::MonotonicTime deadline);

  const std::size_t nodes_;
  const std::string dir_;
  const std::stop_token stop_;
  std::vector<Process> processes_;
};

/// What `stop` makes of a call.
absl::Status Interrupted();

}  // namespace onepiece::bench
