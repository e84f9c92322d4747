// Who was let into a region, by the names of the nodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::values {

/// Ownership  Owns the accesses; goes before their region.
/// Threading  Thread-compatible.
/// Invariant  The dead are forgotten whenever somebody comes.
class Enrollments {
 public:
  /// Ends what this node had before. Errors: those of Region::Accept.
  absl::StatusOr<fabric::RemoteRegion> Enroll(fabric::Region& region, const std::string& peer,
                                              const fabric::Offer& offer);
  /// True: nothing of `peer` takes effect in the region any more.
  bool Fence(const std::string& peer);

 private:
  struct Enrollment {
    std::string peer;
    std::unique_ptr<fabric::Access> access;
  };
  std::vector<Enrollment> enrollments_;
};

}  // namespace onepiece::values
