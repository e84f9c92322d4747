// Time that tests control. Nothing outside program entry points reads the system's clock directly.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::base {

using Duration = std::chrono::nanoseconds;
/// Monotonic time since an arbitrary start; for intervals and deadlines inside one process.
using MonotonicTime = std::chrono::time_point<std::chrono::steady_clock, Duration>;
/// Unix time. It is for people: no process may decide anything by it, because the hosts' clocks may
/// differ by any amount and jump. Time limits travel as the time that is left.
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

/// A source of time.
///
/// Threading: thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual MonotonicTime Now() const = 0;
  [[nodiscard]] virtual WallTime WallNow() const = 0;
  /// Waits until `predicate` holds, `deadline` passes on this clock, or `stop` is requested.
  /// Returns the predicate's last value. `lock` must hold the mutex that guards what the predicate
  /// reads; whoever changes it notifies `condition`.
  virtual bool WaitUntil(CondVar& condition, MutexLock& lock, std::stop_token stop,
                         MonotonicTime deadline, const std::function<bool()>& predicate) = 0;
  /// Waits until `duration` has passed on this clock or `stop` is requested. Returns true when the
  /// time passed.
  virtual bool Pause(const std::stop_token& stop, Duration duration);
};

/// The system's clocks. One instance serves the whole process.
Clock& SystemClock();

/// A clock that stands still until a test moves it.
///
/// Threading: thread-safe.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(WallTime start = WallTime(std::chrono::hours(24 * 365 * 55)));
  [[nodiscard]] MonotonicTime Now() const override;
  [[nodiscard]] WallTime WallNow() const override;
  bool WaitUntil(CondVar& condition, MutexLock& lock, std::stop_token stop, MonotonicTime deadline,
                 const std::function<bool()>& predicate) override;
  /// Moves both clocks forward and wakes every waiter whose deadline has come.
  void Advance(Duration by);
  /// Sets the wall clock forward, or back when `by` is negative. The monotonic clock stays.
  void StepWall(Duration by);

 private:
  mutable Mutex mutex_;
  Duration offset_ ABSL_GUARDED_BY(mutex_){};
  WallTime start_ ABSL_GUARDED_BY(mutex_);
};

/// $ONEPIECE_TIME_SCALE (default 1, bounded to [0.01, 1000]): every timeout of the product is
/// multiplied by it.
double TimeScale();
/// `timeout` × TimeScale().
Duration Scaled(Duration timeout);
/// Milliseconds since the Unix epoch.
std::int64_t ToUnixMs(WallTime time);
WallTime FromUnixMs(std::int64_t unix_ms);

}  // namespace onepiece::base
