// The peers that were let into a region, by the names of their nodes.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::values {

/// The enrollments of one region. Peers that have died leave with the next Enroll or DropDead.
///
/// Ownership: owns the accesses. Their region must outlive it.
///
/// Threading: thread-safe.
///
/// Blocking: Enroll and Fence wait as Region::Accept and Access::Revoke do, without a lock: other
/// peers' calls go on meanwhile.
///
/// Invariants: there are at most kMaxEnrollments, not counting those that Enroll adds at the
/// moment. The death of a process on another host is never seen, so a bound is needed.
class Enrollments {
 public:
  static constexpr std::size_t kMaxEnrollments = 1024;

  /// Lets `peer` in with `rights`, and ends its earlier enrollments as far as the backend can. When
  /// there are too many, the oldest of other peers ends; that peer enrolls again.
  ///
  /// Errors: those of Region::Accept, and RESOURCE_EXHAUSTED (TOO_MANY_PEERS: none of the others
  /// can be ended).
  absl::StatusOr<fabric::RemoteRegion> Enroll(fabric::Region& region, const std::string& peer,
                                              const fabric::Offer& offer, fabric::Rights rights);
  /// Ends the enrollments with which `peer` writes. Returns true when no operation of `peer`
  /// changes the region any more, and false when the backend cannot promise that yet.
  bool Fence(const std::string& peer);
  /// Forgets the peers whose processes are dead.
  void DropDead();

 private:
  // Shared with the calls that revoke it at the moment.
  struct Enrollment {
    std::string peer;
    std::shared_ptr<fabric::Access> access;
  };
  std::vector<Enrollment> Add(const Enrollment& enrollment);
  std::optional<Enrollment> OldestReaderBeyondBound(const Enrollment& added);
  void Remove(const std::vector<Enrollment>& ended);

  base::Mutex mutex_;
  std::deque<Enrollment> enrollments_ ABSL_GUARDED_BY(mutex_);  // The oldest first.
};

}  // namespace onepiece::values
