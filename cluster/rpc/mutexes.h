// A setting of the process that speaks gRPC.
#pragma once

namespace onepiece::rpc {

/// Distributions build abseil for debugging: each lock of a mutex then enters a graph under a lock
/// of the whole process, and a cycle in it ends the process. gRPC takes dozens of mutexes for a
/// call, in an order that is its own affair. Idempotent, thread-safe.
void IgnoreMutexOrder();

}  // namespace onepiece::rpc
