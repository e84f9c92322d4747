// The request monitor (paper §5): says yes or no to a job by arithmetic, before anything of it is
// decoded. The proxies and the simulator use this one class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/admission/bucket.h"
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

/// Tokens of one pool.
struct PoolLevel {
  std::string pool;
  double seconds = 0;  ///< Of workers; below 0: debt.
};

/// One token bucket for every pool, in worker seconds. A bucket fills as fast as the pool computes
/// (workers × admission_share × this proxy's share); a job takes from each pool on its way what its
/// stages will compute there. So jobs enter at the rate that the narrowest pool takes them (theorem
/// 1), shared pools serve several applications, and a job pays for its steps and shape. A bucket
/// that is not empty lets one job in and may fall below zero: then the next waits until it is paid
/// off. Jobs whose cost is not known yet pay nothing and are bounded by max_jobs_in_flight only; so
/// are pools that the capacity does not name. A pool without workers takes nothing in.
///
/// Tenants  Of what comes into a bucket, each tenant that has asked lately gets an equal share;
/// what
///          one does not use is the others'.
/// Priority Below 0 only what a half-full bucket leaves; above 0 as long as the debt is below one
///          more burst.
///
/// Ownership  Borrows `clock`.
/// Threading  Thread-safe. Never waits; Admit takes microseconds.
/// Bounds     in_flight() <= max_jobs_in_flight; kMaxTenants tenants are told apart, the others
///            share one place.
class RequestMonitor {
 public:
  struct Options {
    int max_jobs_in_flight = 256;
    /// Of the measured capacity, above 0: the rest is for what is mismeasured.
    double admission_share = 0.95;
    /// Worker seconds that an idle pool saves up, as time of the whole pool.
    base::Duration burst = std::chrono::seconds(1);
    /// A pool that has more work queued than this, and than a job for each worker, takes in nothing
    /// (an estimate was wrong).
    base::Duration max_backlog = std::chrono::seconds(10);
  };
  static constexpr std::size_t kMaxApps = 64;  ///< In demands(); further ones are not counted.

  RequestMonitor(Options options, base::Clock& clock);
  ~RequestMonitor();

  /// Newer numbers; buckets keep their level. An empty one: nothing is known (any more).
  void Update(const v1::Capacity& capacity);

  /// Takes the job in until End(), or until its deadline has passed. A job that is in already is
  /// taken at no cost. Errors, each with the narrowest `pool`, `retry_after_ms` where waiting helps
  /// and the other sets' `headroom` ("set-2=0.40,…") as metadata, as far as they are known:
  ///   RESOURCE_EXHAUSTED (OVERLOADED)  a bucket is empty; (TENANT_SHARE) this tenant has had its
  ///     fair share while others ask; (QUOTA) max_jobs_in_flight.
  ///   FAILED_PRECONDITION (DEADLINE_TOO_SHORT)  the deadline is before the estimated end, which
  ///     the message and the metadata `estimate_ms` tell: the debt of the pools on its way, and the
  ///     longest way through its stages.
  absl::Status Admit(const Request& request);
  /// What an ended job pays.
  enum class Price {
    kWhole,   ///< What was asked of it.
    kTime,    ///< It was cancelled or failed: no pool worked longer on it than it was in.
    kNothing  ///< It never began.
  };
  /// The job has ended, or never began. Idempotent.
  void End(const base::Uid& uid, Price price = Price::kWhole);
  /// Up to `count` jobs whose state was asked for longest ago; counts as asking now. Forgets jobs
  /// past their deadline.
  std::vector<base::Uid> NextToCheck(std::size_t count);
  /// The job is in.
  [[nodiscard]] bool Contains(const base::Uid& uid) const;
  [[nodiscard]] int in_flight() const;
  /// Of the pools that the capacity names.
  [[nodiscard]] std::vector<PoolLevel> levels() const;
  /// For NodeLoad: jobs asked for, by application.
  [[nodiscard]] std::vector<v1::Demand> demands() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace onepiece::admission
