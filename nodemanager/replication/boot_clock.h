// The clock of consensus. Private to this folder.
#pragma once

#include <time.h>

#include "nodemanager/paxos/types.h"

namespace onepiece::nodemanager {

/// Reads CLOCK_BOOTTIME. It goes on while the machine is suspended, so a leader that slept finds
/// its lease over. Nobody sets it, unlike the wall clock.
inline paxos::Time BootNow() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return paxos::Time(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace onepiece::nodemanager
