// How often somebody may do something.
#pragma once

#include <algorithm>

#include "cluster/base/clock.h"
#include "cluster/base/seconds.h"

namespace onepiece::rpc {

/// A token bucket that is full at first. Rate and burst come with each call, so that they may
/// change at any time. A value type; the caller synchronises.
class TokenBucket {
 public:
  /// Takes a token, and returns zero. An empty bucket gives none: returns how long until it has
  /// one.
  ///
  /// REQUIRES: `per_s` and `burst` are above 0.
  base::Duration Take(double per_s, double burst, base::MonotonicTime now) {
    const base::Duration one = base::FromSeconds(1 / per_s);
    const base::Duration all = base::FromSeconds(std::max(burst, 1.0) / per_s);
    const base::MonotonicTime next = std::max(full_at_, now) + one;
    if (next > now + all) return next - (now + all);
    full_at_ = next;
    return base::Duration::zero();
  }
  /// A full bucket is as good as a new one.
  [[nodiscard]] bool IsFull(base::MonotonicTime now) const { return full_at_ <= now; }

 private:
  base::MonotonicTime full_at_ = base::MonotonicTime::min();
};

}  // namespace onepiece::rpc
