#include "cluster/database/timer_wheel.h"

#include <algorithm>
#include <bit>

#include "cluster/base/check.h"

namespace onepiece::database {

// The place of a timer follows from the tick of its due time. The highest bit in which this tick
// differs from current_ selects the wheel, and the tick's digit in that wheel selects the slot. So
// within a wheel, every used slot comes after the current one and before the wheel wraps around,
// and the slots of a lower wheel come before those of a higher one.

TimerWheel::TimerWheel(base::MonotonicTime now) : current_(TickOf(now)) {
  for (Slots& slots : wheels_) {
    for (Timer& head : slots) head.next = head.previous = &head;
  }
}

void TimerWheel::Set(Timer& timer, base::MonotonicTime due) {
  Cancel(timer);
  timer.due = due;
  Link(timer);
  ++size_;
}

void TimerWheel::Cancel(Timer& timer) {
  if (!timer.set()) return;
  Unlink(timer);
  --size_;
}

std::vector<Timer*> TimerWheel::Advance(base::MonotonicTime now, std::size_t limit) {
  const std::uint64_t target = std::max(TickOf(now), current_);
  std::vector<Timer*> due;
  do {
    TakeDue(now, limit, due);
  } while (due.size() < limit && MoveOn(target));
  size_ -= due.size();
  return due;
}

std::uint64_t TimerWheel::TickOf(base::MonotonicTime time) {
  constexpr std::int64_t kEpochTicks = std::int64_t{1} << 44;  // No time has a negative tick.
  const std::int64_t ns = time.time_since_epoch().count();
  const std::int64_t ticks = ns / kTick.count() - (ns % kTick.count() < 0 ? 1 : 0);
  return static_cast<std::uint64_t>(ticks + kEpochTicks);
}

void TimerWheel::Link(Timer& timer) {
  const std::uint64_t tick = std::max(TickOf(timer.due), current_);
  const auto differing = static_cast<std::size_t>(std::bit_width(tick ^ current_));
  const std::size_t wheel = differing == 0 ? 0 : (differing - 1) / kSlotBits;
  const std::size_t index = IndexOf(tick, wheel);
  Timer& head = wheels_[wheel][index];
  timer.next = &head;
  timer.previous = head.previous;
  head.previous->next = &timer;
  head.previous = &timer;
  occupied_[wheel] |= std::uint64_t{1} << index;
}

void TimerWheel::Unlink(Timer& timer) {
  timer.next->previous = timer.previous;
  timer.previous->next = timer.next;
  timer.next = timer.previous = nullptr;
}

// Takes the due timers of the current slot. The others are due later in this tick.
void TimerWheel::TakeDue(base::MonotonicTime now, std::size_t limit, std::vector<Timer*>& due) {
  Timer& head = wheels_[0][IndexOf(current_, 0)];
  for (Timer* timer = head.next; timer != &head && due.size() < limit;) {
    Timer* const next = timer->next;
    if (timer->due <= now) {
      Unlink(*timer);
      due.push_back(timer);
    }
    timer = next;
  }
}

// Moves current_ to the next used slot, but not beyond `target`. Returns false when current_ is at
// `target` already.
bool TimerWheel::MoveOn(std::uint64_t target) {
  if (current_ == target) return false;
  for (std::size_t wheel = 0; wheel < kWheels; ++wheel) {
    const std::size_t index = IndexOf(current_, wheel);
    // Two shifts, because one shift by 64 would be undefined.
    const std::uint64_t later = occupied_[wheel] & (~std::uint64_t{0} << index << 1);
    if (later == 0) continue;
    const auto slot = static_cast<std::size_t>(std::countr_zero(later));
    const std::uint64_t step = std::uint64_t{1} << (kSlotBits * wheel);
    const std::uint64_t start = (current_ & ~(step * kSlots - 1)) + slot * step;
    // The slots of higher wheels come later still.
    if (start > target) break;
    current_ = start;
    occupied_[wheel] &= ~(std::uint64_t{1} << slot);
    // A slot of wheel 0 is now the current slot, which TakeDue reads in place.
    if (wheel > 0) Relink(wheels_[wheel][slot]);
    return true;
  }
  current_ = target;
  return true;
}

void TimerWheel::Relink(Timer& head) {
  while (head.next != &head) {
    Timer& timer = *head.next;
    Unlink(timer);
    Link(timer);
  }
}

}  // namespace onepiece::database
