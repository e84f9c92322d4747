#include "cluster/values/enrollments.h"

#include <utility>

namespace onepiece::values {

absl::StatusOr<fabric::RemoteRegion> Enrollments::Enroll(fabric::Region& region,
                                                         const std::string& peer,
                                                         const fabric::Offer& offer) {
  // The new enrollment comes first, so that a failure leaves the old one as it is.
  auto access = region.Accept(offer);
  if (!access.ok()) return access.status();
  // A former process of the node that may still write stays known, so that Fence tells the truth.
  std::erase_if(enrollments_, [&](const Enrollment& old) {
    const bool same_process = old.access->peer() == offer.peer;
    return old.access->PeerIsDead() || (old.peer == peer && (old.access->Revoke() || same_process));
  });
  fabric::RemoteRegion remote = (*access)->remote();
  enrollments_.push_back({peer, *std::move(access)});
  return remote;
}

bool Enrollments::Fence(const std::string& peer) {
  std::erase_if(enrollments_, [&](const Enrollment& enrollment) {
    return enrollment.peer == peer && enrollment.access->Revoke();
  });
  for (const Enrollment& enrollment : enrollments_) {
    if (enrollment.peer == peer) return false;
  }
  return true;
}

}  // namespace onepiece::values
