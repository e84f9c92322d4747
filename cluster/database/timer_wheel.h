// A hierarchical timing wheel (Varghese and Lauck, SOSP 1987). Setting, moving and cancelling a
// timer take O(1), however many timers wait.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cluster/base/clock.h"

namespace onepiece::database {

/// A timer, embedded in the object that it times. It must not move while it is set.
struct Timer {
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  [[nodiscard]] bool set() const { return next != nullptr; }

  base::MonotonicTime due{};
  Timer* next = nullptr;
  Timer* previous = nullptr;
};

/// Hands out timers when they are due. Any due time is allowed. The first Advance(now) with
/// now >= due hands out a timer, and no earlier one does. The tick only decides how many timers
/// Advance looks at.
///
/// When much time has passed, all due timers come at once, in order of their due times to within a
/// tick. Timers that were overdue when they were set come in no order.
///
/// Ownership: borrows the timers. A timer must be cancelled before it is destroyed.
/// Threading: externally synchronised (by the lock of its shard).
class TimerWheel {
 public:
  explicit TimerWheel(base::MonotonicTime now);
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  /// Sets a timer, or moves one that is set.
  void Set(Timer& timer, base::MonotonicTime due);
  /// Does nothing when the timer is not set.
  void Cancel(Timer& timer);
  /// Removes up to `limit` due timers from the wheel and returns them, the earliest ticks first.
  /// Call it again as long as it returns `limit` timers. REQUIRES: `now` never decreases.
  std::vector<Timer*> Advance(base::MonotonicTime now, std::size_t limit);
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  static constexpr base::Duration kTick = std::chrono::milliseconds(1);
  /// 48 bits of ticks; a MonotonicTime has 45.
  static constexpr int kWheels = 8, kSlotBits = 6, kSlots = 1 << kSlotBits;
  using Slots = std::array<Timer, kSlots>;  // Each is the head of a ring of timers.

  static std::uint64_t TickOf(base::MonotonicTime time);
  static std::size_t IndexOf(std::uint64_t tick, std::size_t wheel) {
    return (tick >> (kSlotBits * wheel)) & (kSlots - 1);
  }
  void Link(Timer& timer);
  static void Unlink(Timer& timer);
  void TakeDue(base::MonotonicTime now, std::size_t limit, std::vector<Timer*>& due);
  bool MoveOn(std::uint64_t target);
  void Relink(Timer& head);

  // The tick that Advance has reached. Its slot also holds all overdue timers.
  std::uint64_t current_;
  std::array<Slots, kWheels> wheels_;
  // A bit for each slot that may have timers. It is cleared when Advance moves on to the slot.
  std::array<std::uint64_t, kWheels> occupied_{};
  std::size_t size_ = 0;
};

}  // namespace onepiece::database
