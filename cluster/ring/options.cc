#include "cluster/ring/options.h"

#include "cluster/base/seconds.h"

namespace onepiece::ring {
namespace {

base::Duration Times(base::Duration duration, double scale) {
  return std::chrono::duration_cast<base::Duration>(
      std::chrono::duration<double, std::nano>(duration) * scale);
}

}  // namespace

base::Duration Timeouts::Lock() const { return Times(lock, scale); }

base::Duration Timeouts::Fill(std::uint64_t length_bytes) const {
  const double copy_s =
      static_cast<double>(length_bytes) / static_cast<double>(fill_floor_bytes_per_second);
  return Times(fill_base + base::FromSeconds(copy_s), scale);
}

base::Duration Timeouts::Sweep() const { return Times(sweep, scale); }

}  // namespace onepiece::ring
