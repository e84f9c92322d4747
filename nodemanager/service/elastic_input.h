// What elasticity is computed from, copied: neither the log nor reports wait for what is computed.
#pragma once

#include "nodemanager/plans/plans.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// What the leader knew at a moment, for the functions of nodemanager/plans except NextSteps.
///
/// Threading  A plain value.
class ElasticInput {
 public:
  ElasticInput(const StateMachine& state, const Telemetry& telemetry)
      : state_(state.CopyForPlans()), window_(*telemetry.window), telemetry_(telemetry) {
    telemetry_.routing_epoch = nullptr;  // It asks who is gone by then.
  }

  [[nodiscard]] const StateMachine& state() const { return state_; }
  /// Valid as long as this object.
  [[nodiscard]] Telemetry telemetry() const {
    Telemetry own = telemetry_;
    own.window = &window_;
    return own;
  }

 private:
  StateMachine state_;
  LoadWindow window_;
  Telemetry telemetry_;  // But for its window.
};

}  // namespace onepiece::nodemanager
