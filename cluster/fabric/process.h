// Tells which processes of this host live. Internal to the fabric and its backends.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

/// Watches one process.
///
/// Threading: thread-safe.
class ProcessWatch {
 public:
  virtual ~ProcessWatch() = default;
  /// True once the process is dead, so that none of its instructions can take effect any more.
  /// Never waits.
  [[nodiscard]] virtual bool IsDead() const = 0;
};

/// The calling process.
PeerIdentity SelfIdentity();
/// Watches a process through a pidfd. A process of another host never seems dead. For a process
/// that is dead already the watch says so.
///
/// Errors: INTERNAL (no descriptors left, or no pidfd in this kernel).
absl::StatusOr<std::unique_ptr<ProcessWatch>> WatchProcess(const PeerIdentity& identity);
/// The same for a peer that asks to be let in.
///
/// Errors: as above, and UNAVAILABLE (PEER_GONE) when it is dead.
absl::StatusOr<std::unique_ptr<ProcessWatch>> WatchLivingPeer(const PeerIdentity& identity);

}  // namespace onepiece::fabric
