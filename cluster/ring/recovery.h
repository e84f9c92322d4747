// The thread that ticks a consumer's recovery.
#pragma once

#include <thread>

#include "cluster/base/clock.h"
#include "cluster/ring/consumer.h"

namespace onepiece::ring {

/// Calls Consumer::Tick and Consumer::Rest in turns, from its own thread, until destroyed. It
/// notices within `watchful` that a producer died in the middle of a send. An idle ring costs one
/// look each `calm`.
///
/// Ownership: borrows `consumer` and `clock`, which must outlive it. The destructor waits for the
/// tick under way.
class RecoveryRunner {
 public:
  explicit RecoveryRunner(Consumer& consumer, base::Clock& clock = base::SystemClock(),
                          base::Duration watchful = std::chrono::milliseconds(2),
                          base::Duration calm = std::chrono::milliseconds(100));

 private:
  std::jthread thread_;
};

}  // namespace onepiece::ring
