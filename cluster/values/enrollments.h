// The peers that were let into a region, by the names of their nodes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::values {

/// The enrollments of one region. Each Enroll forgets the peers that have died.
///
/// Ownership: owns the accesses. Their region must outlive it.
///
/// Threading: not thread-safe.
class Enrollments {
 public:
  /// Lets `peer` in, and ends its earlier enrollments as far as the backend can.
  ///
  /// Errors: those of Region::Accept.
  absl::StatusOr<fabric::RemoteRegion> Enroll(fabric::Region& region, const std::string& peer,
                                              const fabric::Offer& offer);
  /// Ends the enrollments of `peer`. Returns true when no operation of `peer` takes effect in the
  /// region any more, and false when the backend cannot promise that yet.
  bool Fence(const std::string& peer);

 private:
  struct Enrollment {
    std::string peer;
    std::unique_ptr<fabric::Access> access;
  };
  std::vector<Enrollment> enrollments_;
};

}  // namespace onepiece::values
