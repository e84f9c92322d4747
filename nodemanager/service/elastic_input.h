// A copy of what elasticity is computed from, so that neither the log nor reports wait for the
// computation.
#pragma once

#include "nodemanager/plans/plans.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// What the leader knew at one moment. All functions of nodemanager/plans except NextSteps() can
/// use it.
///
/// Ownership: owns its copies.
/// Threading: thread-compatible.
class ElasticInput {
 public:
  ElasticInput(const StateMachine& state, const Telemetry& telemetry)
      : state_(state.CopyForPlans()),
        window_(*telemetry.window),
        ages_(*telemetry.ages),
        telemetry_(telemetry) {
    telemetry_.routing_epoch = nullptr;  // It may be called only while the reports are locked.
  }

  [[nodiscard]] const StateMachine& state() const { return state_; }
  /// The telemetry, which is valid as long as this object lives.
  [[nodiscard]] Telemetry telemetry() const {
    Telemetry own = telemetry_;
    own.window = &window_;
    own.ages = &ages_;
    return own;
  }

 private:
  StateMachine state_;
  LoadWindow window_;
  StampAges ages_;
  Telemetry telemetry_;  // Its `window` and `ages` are the originals and must not be used.
};

}  // namespace onepiece::nodemanager
