// The thread that ticks a consumer's recovery.
#pragma once

#include <thread>

#include "cluster/base/clock.h"
#include "cluster/ring/consumer.h"

namespace onepiece::ring {

/// Ticks and rests (Consumer::Rest) from its own thread until destroyed. The death of a producer in
/// the middle of a send is noticed within `watchful`; an idle ring costs a look each `calm`.
///
/// Ownership: Borrows `consumer` and `clock`; destroy it before them. Destruction waits for the
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
