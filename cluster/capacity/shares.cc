#include "cluster/capacity/shares.h"

#include <algorithm>
#include <cmath>

namespace onepiece::capacity {
namespace {

// A proxy that is asked for all that it gets must be able to admit it, although proxies admit only
// a part (admission_share) of what the workers do, and it may soon be asked for more.
constexpr double kRoom = 1.25;

double WantedOf(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

}  // namespace

std::vector<double> Shares(std::span<const double> wanted, double load) {
  double all = 0;
  for (const double one : wanted) all += WantedOf(one);
  const double even = 1 / static_cast<double>(std::max<std::size_t>(1, wanted.size()));
  const double busy = all > 0 && load > 0 ? std::min(1.0, kRoom * load) : 0;
  std::vector<double> shares;
  for (const double one : wanted) {
    const double asked = all > 0 ? WantedOf(one) / all : 0;
    shares.push_back(std::max(busy * asked + (1 - busy) * even, kIdleShare * even));
  }
  return shares;
}

}  // namespace onepiece::capacity
