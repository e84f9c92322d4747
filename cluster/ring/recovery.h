// The thread that ticks a consumer's recovery.
#pragma once

#include <thread>

#include "cluster/base/clock.h"
#include "cluster/ring/consumer.h"

namespace onepiece::ring {

/// Calls consumer.Tick every `interval` from its own thread until destroyed.
///
/// Ownership  Borrows `consumer` and `clock`; destroy it before them. Destruction waits for the
/// tick under way.
class RecoveryRunner {
 public:
  explicit RecoveryRunner(Consumer& consumer, base::Clock& clock = base::SystemClock(),
                          base::Duration interval = std::chrono::milliseconds(20));

 private:
  std::jthread thread_;
};

}  // namespace onepiece::ring
