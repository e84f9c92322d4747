// What another process has used, as /proc tells.
#pragma once

#include <cstdint>

namespace onepiece::bench {

/// Processor time, of all its threads. 0 when there is no such process.
double CpuSeconds(std::int32_t pid);
double ResidentBytesOf(std::int32_t pid);

}  // namespace onepiece::bench
