// Growing pauses with jitter between attempts. Internal to cluster/node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"

namespace onepiece::node {

/// A random time below `limit`.
///
/// Threading: may be called from any thread.
inline base::Duration RandomPart(base::Duration limit) {
  const auto range = static_cast<std::uint64_t>(std::max<std::int64_t>(1, limit.count()));
  return base::Duration(static_cast<base::Duration::rep>(base::RandomU64() % range));
}

/// Doubles from `min` to `max` (both scaled by $ONEPIECE_TIME_SCALE). Each pause is drawn from the
/// upper half of its range, so that nodes which failed together do not come back together.
///
/// Threading: Thread-confined.
class Backoff {
 public:
  Backoff(base::Duration min, base::Duration max)
      : min_(base::Scaled(min)),
        max_(base::Scaled(max)),
        current_(min_),
        random_(base::RandomU64()) {}

  base::Duration Next() {
    const base::Duration::rep full = current_.count();
    current_ = std::min(current_ * 2, max_);
    return base::Duration(
        std::uniform_int_distribution<base::Duration::rep>(full / 2, full)(random_));
  }
  void Reset() { current_ = min_; }

 private:
  const base::Duration min_, max_;
  base::Duration current_;
  std::minstd_rand random_;
};

}  // namespace onepiece::node
