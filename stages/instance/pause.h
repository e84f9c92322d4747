// A pause on a clock, which a stop ends early. Private to stages/instance.
#pragma once

#include <stop_token>

#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"

namespace onepiece::instance {

inline void Pause(base::Clock& clock, const std::stop_token& stop, base::Duration duration) {
  base::Mutex mutex;
  base::MutexLock lock(mutex);
  base::CondVar nobody;
  clock.WaitUntil(nobody, lock, stop, clock.Now() + duration, [] { return false; });
}

}  // namespace onepiece::instance
