// What becomes of gRPC's own log. By default it goes to stderr, one line for each bad handshake:
// between a service's JSON lines, and as fast as a stranger can dial.
#pragma once

namespace onepiece::rpc {

/// gRPC's errors go into the process's log from now on, at most one line in ten seconds, with the
/// number of those that were left out. For services.
///
/// Threading: may be called from any thread.
void KeepGrpcLogShort();

/// gRPC says nothing from now on. For programs that tell people what went wrong in their own words.
///
/// Threading: may be called from any thread.
void SilenceGrpcLog();

}  // namespace onepiece::rpc
