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

/// Ownership: Borrows the timers; a timer must be cancelled before it is destroyed.
/// Threading: One at a time (its shard's lock).
/// Exactness: A timer is handed out by the first Advance(now) with now >= due, never before; the
/// wheel's tick decides only how much is looked at. A clock that jumps forward makes all that is
/// due come at once, in order of due time to within a tick (those that were overdue when they were
/// set in no order); one that jumps back makes nothing come twice and nothing come early, and costs
/// a look at every timer.
/// Range: Any due time.
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
  static constexpr base::Duration kTick = std::chrono::milliseconds(1);
  /// 48 bits of ticks; a WallTime has 45.
  static constexpr int kWheels = 8, kSlotBits = 6, kSlots = 1 << kSlotBits;
  using Slots = std::array<Timer, kSlots>;  // Heads of rings.

  static std::uint64_t TickOf(base::WallTime time);
  static std::size_t IndexOf(std::uint64_t tick, std::size_t wheel) {
    return (tick >> (kSlotBits * wheel)) & (kSlots - 1);
  }
  void Link(Timer& timer);
  static void Unlink(Timer& timer);
  void TakeDue(base::WallTime now, std::size_t limit, std::vector<Timer*>& due);
  bool MoveOn(std::uint64_t target);
  void Relink(Timer& head);
  void Rewind(std::uint64_t tick);

  std::uint64_t current_;  // Tick that Advance has come to; its slot holds all that is overdue too.
  std::array<Slots, kWheels> wheels_;
  // A bit for each slot that may have timers: cleared when it is found empty.
  std::array<std::uint64_t, kWheels> occupied_{};
  std::size_t size_ = 0;
};

}  // namespace onepiece::database
