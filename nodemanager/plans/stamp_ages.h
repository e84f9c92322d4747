// How old plans, their moves' phases and the hold are, without a wall clock.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "cluster/base/clock.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// When this leader saw each plan, each phase of a move and the hold for the first time, by its
/// monotonic clock. The time stamps of the state are wall times, and so for showing alone: a clock
/// that is set, or a new leader whose clock differs, must neither end a phase nor make it last.
///
/// A new leader sees everything at the beginning of its leadership, so what was timed before begins
/// anew.
///
/// Threading: thread-compatible.
/// Invariants: it remembers only what the state that it was shown last holds.
class StampAges {
 public:
  /// Remembers what is new in `state`, and forgets what is gone. It does nothing when the state's
  /// revision is that of the last call.
  void Note(const StateMachine& state, base::MonotonicTime now);
  /// Return how long before `now` Note() first saw the plan, the move in its present phase, or the
  /// hold. What it has not seen yet is new.
  [[nodiscard]] base::Duration AgeOf(const v1::Plan& plan, base::MonotonicTime now) const;
  [[nodiscard]] base::Duration AgeOf(const v1::Plan& plan, const v1::Move& move,
                                     base::MonotonicTime now) const;
  [[nodiscard]] base::Duration AgeOf(const v1::Hold& hold, base::MonotonicTime now) const;

 private:
  // A stamp alone would not do: after a clock was set back, two events may have the same one.
  struct Key {
    std::string plan_id, node_id;  // Both are empty for the hold.
    int phase = 0;
    std::int64_t unix_ms = 0;
    auto operator<=>(const Key&) const = default;
  };
  static Key KeyOf(const v1::Plan& plan) { return {plan.plan_id(), "", 0, plan.create_unix_ms()}; }
  static Key KeyOf(const v1::Plan& plan, const v1::Move& move) {
    return {plan.plan_id(), move.node_id(), move.phase(), move.phase_since_unix_ms()};
  }
  // A hold has no stamp of its begin. One that begins anew ends at another time.
  static Key KeyOf(const v1::Hold& hold) { return {"", "", 0, hold.until_unix_ms()}; }
  [[nodiscard]] base::Duration AgeOf(const Key& key, base::MonotonicTime now) const;

  std::uint64_t revision_ = 0;  // Of the state that Note() saw last.
  std::map<Key, base::MonotonicTime> seen_;
};

}  // namespace onepiece::nodemanager
