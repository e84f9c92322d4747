// A host that registers far more often than any host should.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cluster/base/shutdown.h"
#include "cluster/local/process.h"

namespace onepiece::bench {

/// What a flood came to.
struct FloodCounts {
  std::uint64_t sent = 0, answered = 0, taken = 0;
  double seconds = 0;
};

/// Floods `address` with registrations until a signal comes, and prints the counts to stdout. For a
/// process of its own. Of two registrations, one is of a node that begins anew each time, and would
/// cost a commit and a new table. The other one has an address that nobody can reach. A leader that
/// answers slowly gets fewer.
int RunFlood(const std::string& address, int per_second, base::ShutdownSignals& signals);

/// A process that runs RunFlood(), like another host.
///
/// Threading: thread-confined; the process ends with the thread that started it.
class FloodProcess {
 public:
  /// Errors: those of local::Spawn.
  static absl::StatusOr<std::unique_ptr<FloodProcess>> Start(const std::string& address,
                                                             int per_second,
                                                             const std::string& dir);
  /// Kills the process.
  ~FloodProcess();
  FloodProcess(const FloodProcess&) = delete;
  FloodProcess& operator=(const FloodProcess&) = delete;

  /// Ends the process, which waits for the answers to what it sent.
  /// REQUIRES: it is called once.
  absl::StatusOr<FloodCounts> Stop();

 private:
  FloodProcess(local::ProcessId id, std::string output) : id_(id), output_(std::move(output)) {}

  const local::ProcessId id_;
  const std::string output_;
  bool ended_ = false;
};

}  // namespace onepiece::bench
