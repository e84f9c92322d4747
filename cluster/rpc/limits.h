// What one server lets connections and calls do (docs/security.md, "Limits").
#pragma once

#include "cluster/base/clock.h"
#include "cluster/rpc/caller_limits.h"
#include "cluster/rpc/connection_limits.h"

namespace onepiece::rpc {

/// Owned by the door, which counts calls. The server asks it about connections.
struct Limits {
  explicit Limits(const base::Clock& clock) : connections(clock), calls(clock) {}
  void Follow(const v1::CallerLimits& limits) {
    connections.Follow(limits);
    calls.Follow(limits);
  }
  ConnectionLimits connections;
  CallerLimits calls;
};

}  // namespace onepiece::rpc
