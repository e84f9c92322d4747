#include "cluster/values/enrollments.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cluster/base/status.h"

namespace onepiece::values {

namespace {

bool CanWrite(const fabric::Access& access) {
  return access.remote().rights == fabric::Rights::kReadWrite;
}

}  // namespace

absl::StatusOr<fabric::RemoteRegion> Enrollments::Enroll(fabric::Region& region,
                                                         const std::string& peer,
                                                         const fabric::Offer& offer,
                                                         fabric::Rights rights) {
  // The new enrollment comes first, so that a failure leaves the old one as it is.
  ONEPIECE_ASSIGN_OR_RETURN(std::shared_ptr<fabric::Access> access, region.Accept(offer, rights));
  const Enrollment added{peer, std::move(access)};
  std::vector<Enrollment> ended = Add(added);
  // A former process of the node that may still write stays known, so that Fence tells the truth.
  std::erase_if(ended, [&](const Enrollment& old) {
    const bool same_process = old.peer == peer && old.access->peer() == offer.peer;
    return !old.access->PeerIsDead() && !old.access->Revoke() && CanWrite(*old.access) &&
           !same_process;
  });
  Remove(ended);
  // The oldest may be writers that cannot be cut off. Then a reader gives way.
  if (const std::optional<Enrollment> reader = OldestReaderBeyondBound(added); reader)
    Remove({*reader});
  {
    const base::MutexLock lock(mutex_);
    if (enrollments_.size() <= kMaxEnrollments) return added.access->remote();
  }
  Remove({added});
  return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_PEERS",
                         "too many processes use this memory");
}

// Returns those that should end: the dead, the earlier ones of this peer, and the oldest beyond the
// bound. Of two enrollments of one peer that are added at once, the later one ends the earlier one.
std::vector<Enrollments::Enrollment> Enrollments::Add(const Enrollment& enrollment) {
  const base::MutexLock lock(mutex_);
  std::vector<Enrollment> ending, others;
  for (const Enrollment& old : enrollments_) {
    const bool ends = old.peer == enrollment.peer || old.access->PeerIsDead();
    (ends ? ending : others).push_back(old);
  }
  enrollments_.push_back(enrollment);
  if (others.size() >= kMaxEnrollments) {
    const auto excess = static_cast<std::ptrdiff_t>(others.size() + 1 - kMaxEnrollments);
    std::copy_n(others.begin(), excess, std::back_inserter(ending));
  }
  return ending;
}

std::optional<Enrollments::Enrollment> Enrollments::OldestReaderBeyondBound(
    const Enrollment& added) {
  const base::MutexLock lock(mutex_);
  if (enrollments_.size() <= kMaxEnrollments) return std::nullopt;
  const auto reader = std::ranges::find_if(enrollments_, [&](const Enrollment& enrollment) {
    return enrollment.access != added.access && !CanWrite(*enrollment.access);
  });
  return reader == enrollments_.end() ? std::nullopt : std::optional(*reader);
}

void Enrollments::Remove(const std::vector<Enrollment>& ended) {
  const base::MutexLock lock(mutex_);
  // The caller's copies keep the accesses, so none is destroyed, and revoked, under the lock.
  std::erase_if(enrollments_, [&](const Enrollment& enrollment) {
    return std::ranges::find(ended, enrollment.access, &Enrollment::access) != ended.end();
  });
}

bool Enrollments::Fence(const std::string& peer) {
  std::vector<Enrollment> theirs;
  {
    const base::MutexLock lock(mutex_);
    std::ranges::copy_if(enrollments_, std::back_inserter(theirs),
                         [&](const Enrollment& enrollment) {
                           return enrollment.peer == peer && CanWrite(*enrollment.access);
                         });
  }
  const std::size_t all = theirs.size();
  std::erase_if(theirs, [](const Enrollment& enrollment) { return !enrollment.access->Revoke(); });
  Remove(theirs);
  return theirs.size() == all;
}

void Enrollments::DropDead() {
  std::vector<Enrollment> dead;
  {
    const base::MutexLock lock(mutex_);
    std::ranges::copy_if(enrollments_, std::back_inserter(dead), [](const Enrollment& enrollment) {
      return enrollment.access->PeerIsDead();
    });
  }
  Remove(dead);
}

}  // namespace onepiece::values
