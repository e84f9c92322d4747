// A setting for every process that uses gRPC.
#pragma once

namespace onepiece::rpc {

/// Turns off Abseil's search for deadlocks in the lock order of mutexes.
///
/// Debian builds Abseil without NDEBUG. Each lock of a mutex then enters a graph under a lock of
/// the whole process, and a cycle in the graph ends the process. gRPC takes dozens of mutexes for
/// one call, in an order of its own. Without the search, a get of 64 KiB over gRPC is a quarter
/// faster. Calling this again has no effect.
///
/// Threading: may be called from any thread.
void IgnoreMutexOrder();

}  // namespace onepiece::rpc
