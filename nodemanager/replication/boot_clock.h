// The clock of consensus. Internal to nodemanager/replication.
#pragma once

#include <time.h>

#include "nodemanager/paxos/types.h"

namespace onepiece::nodemanager {

/// CLOCK_BOOTTIME: goes on while the machine is suspended, so that a leader which slept finds its
/// lease over; never set, unlike the wall clock.
inline paxos::Time BootNow() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return paxos::Time(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace onepiece::nodemanager
