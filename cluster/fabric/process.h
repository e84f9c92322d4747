// Identity and death of processes of this host. Internal to the fabric and its backends.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

/// Watches one process. Thread-safe.
class ProcessWatch {
 public:
  virtual ~ProcessWatch() = default;
  /// True once the process is dead: none of its instructions can take effect any more. Never waits.
  [[nodiscard]] virtual bool IsDead() const = 0;
};

/// The calling process.
PeerIdentity SelfIdentity();
/// Watches a process through a pidfd. A process of another host never seems dead; one that is dead
/// already gives a watch that says so.
/// Errors: INTERNAL (no descriptors left, no pidfd on this kernel).
absl::StatusOr<std::unique_ptr<ProcessWatch>> WatchProcess(const PeerIdentity& identity);
/// The same for a peer that is to be let in.
/// Errors: also UNAVAILABLE (PEER_GONE) when it is dead.
absl::StatusOr<std::unique_ptr<ProcessWatch>> WatchLivingPeer(const PeerIdentity& identity);

}  // namespace onepiece::fabric
