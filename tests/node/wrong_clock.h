// A clock whose wall time is wrong, for tests of what must not depend on it.
#pragma once

#include <functional>
#include <stop_token>
#include <utility>

#include "cluster/base/clock.h"

namespace onepiece::node {

/// The system's clock on a machine whose wall clock is wrong by so much.
class WrongClock final : public base::Clock {
 public:
  explicit WrongClock(base::Duration skew) : skew_(skew) {}
  base::MonotonicTime Now() const override { return base::SystemClock().Now(); }
  base::WallTime WallNow() const override { return base::SystemClock().WallNow() + skew_; }
  bool WaitUntil(base::CondVar& condition, base::MutexLock& lock, std::stop_token stop,
                 base::MonotonicTime deadline, const std::function<bool()>& predicate) override {
    return base::SystemClock().WaitUntil(condition, lock, std::move(stop), deadline, predicate);
  }

 private:
  const base::Duration skew_;
};

}  // namespace onepiece::node
