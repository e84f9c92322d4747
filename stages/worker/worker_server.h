// The worker process's own end: loads and runs stages for the instance that started it.
#pragma once

#include "stages/worker/packet_socket.h"

namespace onepiece::worker {

/// Where a worker process finds its control socket.
inline constexpr int kControlFd = 3;

/// Serves the instance at the other end of `control` until that end is closed, and then ends this
/// process at once, whatever it computes: nobody wants the results any more.
[[noreturn]] void Serve(PacketSocket control);

}  // namespace onepiece::worker
