// Seconds as numbers, in which configuration, reports and arithmetic have them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "cluster/base/clock.h"

namespace onepiece::base {

inline double ToSeconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// `seconds` as a duration, exact to a nanosecond. NaN gives zero. Anything longer than a century,
/// infinity too, gives a century of the same sign, which can still be added to any time of a clock.
inline Duration FromSeconds(double seconds) {
  constexpr double kCentury = 100.0 * 365 * 24 * 3600;
  if (std::isnan(seconds)) return {};
  return Duration(std::llround(std::clamp(seconds, -kCentury, kCentury) * 1e9));
}

}  // namespace onepiece::base
