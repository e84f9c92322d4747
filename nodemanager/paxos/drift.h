// Measures whether a peer's clock runs at the rate of this replica's clock.
#pragma once

#include <optional>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos {

/// Compares a peer's clock with this replica's by the peer's answers. The peer read `local` at some
/// moment between this replica's `sent` and `received`. The time between two answers is therefore
/// known up to the length of the two round trips.
///
/// Threading: thread-confined.
class DriftMeter {
 public:
  /// Rates are compared over this time. A clock that drifted must run well for as long before it is
  /// believed again.
  static constexpr Duration kWindow = std::chrono::seconds(10);

  /// Takes one answer. `sent` and `received` are when this replica asked and heard, and `local` is
  /// the peer's time in the answer.
  void Observe(Time sent, Time received, Time local, double max_drift);
  /// True when an answer showed that the clock's rate differs by more than max_drift.
  [[nodiscard]] bool drifts() const { return drifts_; }
  /// True when the peer was watched for so long that its rate is known to be within 2 max_drift of
  /// ours, as a lease needs. The shorter the round trips are, the sooner that is known.
  [[nodiscard]] bool trusted() const { return trusted_ && !drifts_; }

 private:
  struct Sample {
    Time sent, received, local;
  };
  std::optional<Sample> anchor_;  // Later answers are compared with it. Replaced every kWindow.
  bool drifts_ = false;
  bool trusted_ = false;
};

}  // namespace onepiece::paxos
