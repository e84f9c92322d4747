// Waiting for what another process does, for tests that run real programs.
#pragma once

#include <chrono>
#include <utility>

#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"

namespace onepiece::testing {

/// Lets `time` pass.
inline void Pause(base::Duration time) {
  base::Mutex mutex;
  base::MutexLock lock(mutex);
  base::CondVar nobody;
  base::Clock& clock = base::SystemClock();
  clock.WaitUntil(nobody, lock, {}, clock.Now() + time, [] { return false; });
}

/// Looks at `condition` every 10 ms; false when it does not come true within `limit`. Another
/// process notifies nobody, so looking is all that a test can do.
template <typename Condition>
bool Eventually(base::Duration limit, Condition condition) {
  const auto deadline = base::SystemClock().Now() + limit;
  while (!condition()) {
    if (base::SystemClock().Now() > deadline) return false;
    Pause(std::chrono::milliseconds(10));
  }
  return true;
}

/// Eventually with a limit that no sound run comes near: 20 s, scaled.
template <typename Condition>
bool Eventually(Condition condition) {
  return Eventually(base::Scaled(std::chrono::seconds(20)), std::move(condition));
}

}  // namespace onepiece::testing
