// Ports of the loopback that a cluster's processes must know before they start.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::local {

/// `count` ports of 127.0.0.1 that nobody uses now, all different, below those that the system
/// gives to outgoing connections: one that is free for a moment during a restart stays free.
/// Errors: RESOURCE_EXHAUSTED (NO_PORTS).
absl::StatusOr<std::vector<int>> FreePorts(int count);

}  // namespace onepiece::local
