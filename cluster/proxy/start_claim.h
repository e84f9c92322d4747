// StartClaim: one call's claim to give a job's work to its first instances.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::proxy {

/// A claim to start one job (StartLease), as its claimant counts it. The time runs from before the
/// call that took or renewed the lease, so the claimant stops before a database gives the job to
/// another. Two calls of one proxy have two claims.
///
/// Ownership: borrows the clock.
///
/// Threading: thread-confined.
class StartClaim {
 public:
  /// Asks a database (JobRecords::Claim).
  using Ask = std::function<absl::StatusOr<v1::ClaimStartResponse>(const v1::ClaimStartRequest&)>;

  /// `self` is this proxy. `random` makes the random halves of the claims' numbers.
  StartClaim(Ask ask, const v1::Endpoint& self, base::Clock& clock,
             std::function<std::uint64_t()> random = base::RandomU64);

  /// Returns the lease for the record of a new job: whoever makes a job also starts it.
  [[nodiscard]] v1::StartLease ForNewJob() const;
  /// Takes over what `record` says of this claim. `asked`: when the call that answered with it
  /// began.
  void Note(const v1::JobRecord& record, base::MonotonicTime asked);
  /// Returns whether the record's newest claim is this one, in time or not.
  [[nodiscard]] bool IsOf(const v1::JobRecord& record) const;
  /// Returns whether this claim holds now.
  [[nodiscard]] bool holds() const { return clock_.Now() < until_; }
  /// The time until which it holds unless it is renewed.
  [[nodiscard]] base::MonotonicTime until() const { return until_; }
  /// Returns whether more than a third of its time is over.
  [[nodiscard]] bool is_due() const { return clock_.Now() >= renew_at_; }

  /// Asks a database for the lease: renews it, or makes a new claim when it is lost or was never
  /// taken. The answer's record says whether the job still wants to be started.
  ///
  /// Blocking: as `ask`.
  absl::StatusOr<v1::ClaimStartResponse> Take(const std::string& uid);
  /// Ends the claim, so that the next attempt need not wait. Does nothing when it does not hold.
  void Release(const std::string& uid);

 private:
  [[nodiscard]] v1::ClaimStartRequest Request(const std::string& uid) const;
  void Lose();

  const Ask ask_;
  const v1::Endpoint self_;
  base::Clock& clock_;
  const std::function<std::uint64_t()> random_;
  std::uint64_t number_ = 0;  // Its lower half alone before the lease is taken.
  base::MonotonicTime until_ = base::MonotonicTime::min();
  base::MonotonicTime renew_at_ = base::MonotonicTime::min();
};

}  // namespace onepiece::proxy
