// A hierarchical timing wheel (Varghese and Lauck, SOSP 1987): what is due at a time, in O(1) for
// setting, moving and cancelling, however many wait.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cluster/base/clock.h"

namespace onepiece::database {

/// Embedded in what is timed. Not movable while set.
struct Timer {
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  [[nodiscard]] bool set() const { return next != nullptr; }

  base::WallTime due{};
  Timer* next = nullptr;
  Timer* previous = nullptr;
};

/// Ownership  Borrows the timers; a timer must be cancelled before it is destroyed.
/// Threading  One at a time (its shard's lock).
/// Exactness  A timer is handed out by the first Advance(now) with now >= due, never before; the
///            wheel's tick decides only how much is looked at. A clock that jumps forward makes all
///            that is due come at once, in order of due time to within a tick; one that jumps back
///            makes nothing come twice and nothing come early.
/// Range      Any due time: beyond the last wheel (about 139 years at 1 ms) it waits in the last
///            slot and is put in again.
class TimerWheel {
 public:
  explicit TimerWheel(base::WallTime now);
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  /// Sets or moves.
  void Set(Timer& timer, base::WallTime due);
  /// No-op when it is not set.
  void Cancel(Timer& timer);
  /// Takes up to `limit` timers that are due out of the wheel, the earliest ticks first; call again
  /// while it returns `limit`.
  std::vector<Timer*> Advance(base::WallTime now, std::size_t limit);
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  static constexpr int kWheels = 7, kSlotBits = 6, kSlots = 1 << kSlotBits;
  static constexpr base::Duration kTick = std::chrono::milliseconds(1);

  std::uint64_t TickOf(base::WallTime time) const;
  void Link(Timer& timer);

  std::uint64_t current_ = 0;                             // Tick that Advance has come to.
  std::array<std::array<Timer, kSlots>, kWheels> slots_;  // Heads of rings.
  std::array<std::uint64_t, kWheels> occupied_{};         // A bit for each slot that is not empty.
  std::size_t size_ = 0;
};

}  // namespace onepiece::database
