#include "nodemanager/paxos/drift.h"

namespace onepiece::paxos {
namespace {

// The result is a double because a peer may claim any time, and an integer difference could
// overflow.
double Between(Time from, Time to) {
  return static_cast<double>(to.time_since_epoch().count()) -
         static_cast<double>(from.time_since_epoch().count());
}

}  // namespace

void DriftMeter::Observe(Time sent, Time received, Time local, double max_drift) {
  const Sample sample{sent, received, local};
  if (!anchor_) {
    anchor_ = sample;
    return;
  }
  if (sent <= anchor_->sent) return;  // The answer was overtaken by the anchor.
  // Our clock's time between the peer's two readings lies between `shortest` and `longest`.
  const double theirs = Between(anchor_->local, local);
  const double shortest = Between(anchor_->received, sent);
  const double longest = Between(anchor_->sent, received);
  const double least = shortest * (1 - max_drift);
  const double most = longest * (1 + max_drift);
  if (theirs < least || theirs > most) {
    drifts_ = true;
    trusted_ = false;
    anchor_ = sample;
    return;
  }
  // Trust comes when the round trips are so short against the time that passed that any clock
  // inside the bounds is within 2 max_drift, whatever the true moments of the readings were.
  if (most <= shortest * (1 + 2 * max_drift) && least >= longest * (1 - 2 * max_drift)) {
    trusted_ = true;
  }
  if (received - anchor_->received >= kWindow) {
    drifts_ = false;
    anchor_ = sample;
  }
}

}  // namespace onepiece::paxos
