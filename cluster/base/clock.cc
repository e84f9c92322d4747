#include "cluster/base/clock.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cluster/base/mutex.h"

namespace onepiece::base {
namespace {

class RealClock final : public Clock {
 public:
  MonotonicTime Now() const override { return std::chrono::steady_clock::now(); }
  WallTime WallNow() const override { return std::chrono::system_clock::now(); }
  bool WaitUntil(CondVar& condition, MutexLock& lock, std::stop_token stop, MonotonicTime deadline,
                 const std::function<bool()>& predicate) override {
    return condition.WaitUntil(lock, std::move(stop), deadline, predicate);
  }
  // A producer that backs off pauses for microseconds and cannot be stopped. It needs no condition
  // variable, whose making allocates.
  bool Pause(const std::stop_token& stop, Duration duration) override {
    if (stop.stop_possible()) return Clock::Pause(stop, duration);
    std::this_thread::sleep_for(duration);
    return true;
  }
};

}  // namespace

bool Clock::Pause(const std::stop_token& stop, Duration duration) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  WaitUntil(never, lock, stop, Now() + duration, [] { return false; });
  return !stop.stop_requested();
}

Clock& SystemClock() {
  static RealClock clock;
  return clock;
}

ManualClock::ManualClock(WallTime start) : start_(start) {}

MonotonicTime ManualClock::Now() const {
  const MutexLock lock(mutex_);
  return MonotonicTime(offset_);
}

WallTime ManualClock::WallNow() const {
  const MutexLock lock(mutex_);
  return start_ + offset_;
}

bool ManualClock::WaitUntil(CondVar& condition, MutexLock& lock, std::stop_token stop,
                            MonotonicTime deadline, const std::function<bool()>& predicate) {
  // Polls in real time for the moved clock: Advance() cannot notify a condition that it does not
  // know, and a millisecond of real time never changes what the test sees.
  while (!predicate() && Now() < deadline && !stop.stop_requested()) {
    condition.WaitFor(lock, stop, std::chrono::milliseconds(1), predicate);
  }
  return predicate();
}

void ManualClock::Advance(Duration by) {
  const MutexLock lock(mutex_);
  offset_ += by;
}

void ManualClock::StepWall(Duration by) {
  const MutexLock lock(mutex_);
  start_ += by;
}

double TimeScale() {
  static const double scale = [] {
    const char* text = std::getenv("ONEPIECE_TIME_SCALE");
    const double value = text != nullptr ? std::atof(text) : 1.0;
    return value > 0 ? std::clamp(value, 0.01, 1000.0) : 1.0;
  }();
  return scale;
}

Duration Scaled(Duration timeout) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::nano>(timeout) *
                                              TimeScale());
}

std::int64_t ToUnixMs(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

WallTime FromUnixMs(std::int64_t unix_ms) { return WallTime(std::chrono::milliseconds(unix_ms)); }

}  // namespace onepiece::base
