#include "cluster/values/enrollments.h"

#include <utility>

namespace onepiece::values {

absl::StatusOr<fabric::RemoteRegion> Admissions::Admit(fabric::Region& region,
                                                       const std::string& peer,
                                                       const fabric::Offer& offer) {
  auto access = region.Accept(offer);
  if (!access.ok()) return access.status();
  // A process that lives on under its node's old admission stays known, for Fence.
  std::erase_if(admissions_, [&](const Admission& old) {
    const bool same_process = old.access->peer() == offer.peer;
    return old.access->PeerIsDead() || (old.peer == peer && (old.access->Revoke() || same_process));
  });
  fabric::RemoteRegion remote = (*access)->remote();
  admissions_.push_back({peer, *std::move(access)});
  return remote;
}

bool Admissions::Fence(const std::string& peer) {
  std::erase_if(admissions_, [&](const Admission& admission) {
    return admission.peer == peer && admission.access->Revoke();
  });
  for (const Admission& admission : admissions_) {
    if (admission.peer == peer) return false;
  }
  return true;
}

}  // namespace onepiece::values
