// Does a peer's clock run at our rate?
#pragma once

#include <optional>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos {

/// Compares a peer's clock with ours by its answers. The peer read `local` somewhere between our
/// `sent` and `received`, so the time between two answers is known up to the two round trips.
///
/// Threading  Thread-confined.
class DriftMeter {
 public:
  /// For so long a clock must run well to be believed again; the time over which rates are
  /// compared.
  static constexpr Duration kWindow = std::chrono::seconds(10);

  void Observe(Time sent, Time received, Time local, double max_drift);
  [[nodiscard]] bool drifts() const { return drifts_; }
  /// It was watched for long enough to say that its rate is within 2 max_drift of ours, as a lease
  /// needs; until then, nobody knows. The shorter the round trips, the sooner.
  [[nodiscard]] bool trusted() const { return trusted_ && !drifts_; }

 private:
  struct Sample {
    Time sent, received, local;
  };
  std::optional<Sample> anchor_;  // Replaced every kWindow.
  bool drifts_ = false;
  bool trusted_ = false;
};

}  // namespace onepiece::paxos
