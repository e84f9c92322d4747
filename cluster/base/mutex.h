// Locks that the compiler checks: std::mutex and std::condition_variable_any with Clang's
// thread-safety annotations.
//
// A member that a mutex guards carries ABSL_GUARDED_BY(mutex_). A function whose caller must hold
// the mutex carries ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_), and so does a lambda that a CondVar
// calls. Where two mutexes are held at once, the one taken second carries
// ABSL_ACQUIRED_AFTER(first). Clang checks all this with -Wthread-safety; g++ ignores it.
//
// These are not Abseil's own types: Debian builds Abseil without ThreadSanitizer, which then
// reports races where there are none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "absl/base/thread_annotations.h"

namespace onepiece::base {

/// A mutex that one thread holds at a time, and not twice.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  /// True when this thread holds the mutex now. Never blocks.
  [[nodiscard]] bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) { return mutex_.try_lock(); }
  /// Tells the analysis that this thread holds the mutex where it cannot see that: in a callback
  /// from a C library. Checks nothing at run time.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() {}

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// A mutex that a thread can give up waiting for.
class ABSL_LOCKABLE TimedMutex {
 public:
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  /// True when this thread holds the mutex now. Waits for it until `deadline` of the monotonic
  /// clock.
  template <typename TimePoint>
  [[nodiscard]] bool TryLockUntil(TimePoint deadline) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock_until(deadline);
  }

 private:
  std::timed_mutex mutex_;
};

/// Lets a mutex that this thread already holds go at the end of the scope.
class ABSL_SCOPED_LOCKABLE TimedMutexRelease {
 public:
  explicit TimedMutexRelease(TimedMutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex)
      : mutex_(mutex) {}
  ~TimedMutexRelease() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  TimedMutexRelease(const TimedMutexRelease&) = delete;
  TimedMutexRelease& operator=(const TimedMutexRelease&) = delete;

 private:
  TimedMutex& mutex_;
};

/// Holds a mutex until the end of the scope. Unlock() lets it go early, and Lock() takes it again.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  /// Takes over a mutex that this thread already holds, for instance from TryLock().
  MutexLock(Mutex& mutex, std::adopt_lock_t adopt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex)
      : lock_(mutex.mutex_, adopt) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

 private:
  friend class CondVar;
  std::unique_lock<std::mutex> lock_;
};

/// A condition that threads wait for. Whoever changes what the predicates read does so under the
/// waiters' mutex, and then notifies.
///
/// Every wait lets `lock` go while it sleeps and holds it while it calls `predicate`. It returns
/// the predicate's last value: false means that the time passed or `stop` was requested first.
class CondVar {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  template <typename Predicate>
  void Wait(MutexLock& lock, Predicate predicate) {
    condition_.wait(lock.lock_, std::move(predicate));
  }
  template <typename Predicate>
  bool Wait(MutexLock& lock, std::stop_token stop, Predicate predicate) {
    return condition_.wait(lock.lock_, std::move(stop), std::move(predicate));
  }
  /// Waits for one notification, at most for `limit`. Can also return for no reason, so the caller
  /// looks again.
  template <typename Rep, typename Period>
  void WaitFor(MutexLock& lock, std::chrono::duration<Rep, Period> limit) {
    condition_.wait_for(lock.lock_, limit);
  }
  template <typename Rep, typename Period, typename Predicate>
  bool WaitFor(MutexLock& lock, std::chrono::duration<Rep, Period> limit, Predicate predicate) {
    return condition_.wait_for(lock.lock_, limit, std::move(predicate));
  }
  template <typename Rep, typename Period, typename Predicate>
  bool WaitFor(MutexLock& lock, std::stop_token stop, std::chrono::duration<Rep, Period> limit,
               Predicate predicate) {
    return condition_.wait_for(lock.lock_, std::move(stop), limit, std::move(predicate));
  }
  template <typename TimePoint, typename Predicate>
  bool WaitUntil(MutexLock& lock, std::stop_token stop, TimePoint deadline, Predicate predicate) {
    return condition_.wait_until(lock.lock_, std::move(stop), deadline, std::move(predicate));
  }

 private:
  std::condition_variable_any condition_;
};

}  // namespace onepiece::base
