// Devices for tests of instances with several.
#pragma once

#include <sched.h>

#include <string>
#include <utility>

namespace onepiece::testing {

/// Two devices of different names that this process may use: two cores, or where it has only one,
/// that core and "cpu".
inline std::pair<std::string, std::string> TwoDevices() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  std::string first;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    const std::string name = "cpu:" + std::to_string(core);
    if (!first.empty()) return {first, name};
    first = name;
  }
  return {first, "cpu"};
}

}  // namespace onepiece::testing
