// Servers that were started with --read-only.
#pragma once

#include "grpcpp/support/status.h"

namespace onepiece::rpc {

/// PERMISSION_DENIED (READ_ONLY): what a read-only server answers to every call by which people
/// change something, before it looks at the request. Calls of nodes, and requests that only check,
/// are none. Thread-safe.
grpc::Status RefuseReadOnly();

}  // namespace onepiece::rpc
