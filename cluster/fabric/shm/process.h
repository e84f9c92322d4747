// Identity and death of processes of this host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

/// The calling process.
PeerIdentity SelfIdentity();
/// Watches a process through a pidfd. Errors: INTERNAL (no descriptors left, no pidfd on this
/// kernel).
absl::StatusOr<std::unique_ptr<Peer>> WatchProcess(const PeerIdentity& identity);

}  // namespace onepiece::fabric
