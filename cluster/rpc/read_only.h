// The refusal of servers that were started with --read-only.
#pragma once

#include "grpcpp/support/status.h"

namespace onepiece::rpc {

/// Returns PERMISSION_DENIED (READ_ONLY). A read-only server answers so to every call by which
/// people change something, before it looks at the request. Calls from nodes, and requests that
/// only check, are not such calls.
///
/// Threading: may be called from any thread.
grpc::Status RefuseReadOnly();

}  // namespace onepiece::rpc
