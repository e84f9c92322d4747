// The request monitor (paper §5): says yes or no to a job by arithmetic, before anything of it is
// decoded. The proxies and the simulator use this one class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::admission {

/// What a job asks for.
struct Request {
  base::Uid uid;
  std::string app_id;
  std::string tenant;  ///< Empty is a tenant too.
  int priority = 0;    ///< -100 to 100.
  base::WallTime deadline;
  struct Stage {
    std::string stage;
    double units = 1;  ///< workflow::WorkUnits.
    std::vector<std::string> after;
  };
  std::vector<Stage> stages;
};

/// One token bucket for every pool, in worker seconds. A bucket fills as fast as the pool computes
/// (workers × admission_share × this proxy's share); a job takes from each pool on its way what its
/// stages will compute there. So jobs enter at the rate that the narrowest pool takes them (theorem
/// 1), shared pools serve several applications, and a job pays for its steps and shape. A bucket
/// that is not empty lets one job in and may fall below zero: then the next waits until it is paid
/// off. Jobs whose cost is not known yet pay nothing and are bounded by max_jobs_in_flight only.
///
/// Ownership  Borrows `clock`.
/// Threading  Thread-safe. Never waits; Admit takes microseconds.
/// Bounds     in_flight() <= max_jobs_in_flight; kMaxTenants tenants are told apart, the others
///            share one place.
class RequestMonitor {
 public:
  struct Options {
    int max_jobs_in_flight = 256;
    double admission_share =
        0.95;  ///< Of the measured capacity: the rest is for what is mismeasured.
    /// Worker seconds that an idle pool saves up, as time of the whole pool; at least one job.
    base::Duration burst = std::chrono::seconds(1);
    /// A pool that has more work queued than this takes in nothing (an estimate was wrong).
    base::Duration max_backlog = std::chrono::seconds(10);
  };
  static constexpr std::size_t kMaxTenants = 64;

  RequestMonitor(Options options, base::Clock& clock);

  /// Newer numbers; buckets keep their level. An empty one: nothing is known (any more).
  void Update(const v1::Capacity& capacity);

  /// Takes the job in until End(), or until its deadline has passed. A job that is in already is
  /// taken at no cost. Errors, each with `retry_after_ms`, the narrowest `pool` and the other sets'
  /// `headroom` ("set-2=0.40,…") as metadata:
  ///   RESOURCE_EXHAUSTED (OVERLOADED)  the buckets are empty; (TENANT_SHARE) this tenant has had
  ///   its
  ///     fair share while others ask; (QUOTA) max_jobs_in_flight.
  ///   FAILED_PRECONDITION (DEADLINE_TOO_SHORT)  the deadline is before the estimated end, which
  ///     the message and the metadata `estimate_ms` tell.
  /// Priority: below 0 only what a half-full bucket leaves; above 0 as long as the debt is below
  /// one more burst.
  absl::Status Admit(const Request& request);
  /// The job has ended, or never began. Idempotent. `refund`: it never began, and pays nothing.
  void End(const base::Uid& uid, bool refund = false);
  /// Up to `count` jobs whose state was asked for longest ago; counts as asking now. Forgets jobs
  /// past their deadline.
  std::vector<base::Uid> NextToCheck(std::size_t count);
  [[nodiscard]] int in_flight() const;
  /// For NodeLoad: jobs asked for, by application.
  [[nodiscard]] std::vector<v1::Demand> demands() const;

 private:
  struct State;  // Tokens, tenants, counts; request_monitor.cc.
  // The owner of this module gives the members.
};

}  // namespace onepiece::admission
