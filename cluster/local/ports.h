// Finds free ports on the loopback, for processes that must know each other's before they start.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::local {

/// Returns `count` different ports of 127.0.0.1 that nobody uses now. They are below the ports that
/// the system gives to outgoing connections, so a port that is free for a moment during a restart
/// stays free.
///
/// Errors: RESOURCE_EXHAUSTED (NO_PORTS).
absl::StatusOr<std::vector<int>> FreePorts(int count);

}  // namespace onepiece::local
