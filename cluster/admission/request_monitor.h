// The request monitor (paper §5): says yes or no to a job by arithmetic, before anything of it is
// decoded. The proxies and the simulator use this one class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
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
/// off. A pool without workers takes nothing in.
///
/// Unknown  A stage's cost is known once capacity::kMinSamples jobs were measured, and stays what
///          it was until others are. Until then jobs pay nothing for it, and before or in each pool
///          on their way are two of them for each of its workers (× this proxy's share). Pools
///          that the capacity does not name bound nothing.
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
  /// Refused jobs whose next attempts are told from new jobs.
  static constexpr std::size_t kMaxRefused = 32768;

  RequestMonitor(Options options, base::Clock& clock);
  ~RequestMonitor();

  /// Newer numbers; buckets keep their level, stages whose numbers are missing their last ones. One
  /// that it does not list is not known (any more).
  void Update(const v1::Capacity& capacity);

  /// Takes the job in until End(), or until its deadline has passed. A job that is in already is
  /// taken at no cost. Each OK is followed by Keep or Withdraw. Errors, each with the narrowest
  /// `pool`, `retry_after_ms` where waiting helps and the other sets' `headroom` ("set-2=0.40,…")
  /// as metadata, as far as they are known:
  ///   RESOURCE_EXHAUSTED (OVERLOADED)  a bucket is empty; (TENANT_SHARE) this tenant has had its
  ///     fair share while others ask; (QUOTA) max_jobs_in_flight.
  ///   FAILED_PRECONDITION (DEADLINE_TOO_SHORT)  the deadline is before the estimated end, which
  ///     the message and the metadata `estimate_ms` tell: the debt of the pools on its way, and the
  ///     longest way through its stages.
  absl::Status Admit(const Request& request);
  /// The job that was taken in has begun.
  void Keep(const base::Uid& uid);
  /// It has not, by this caller. When all that were let in with this uid say so it pays nothing and
  /// is out.
  void Withdraw(const base::Uid& uid);
  /// What an ended job pays.
  enum class Price {
    kWhole,  ///< What was asked of it.
    kTime    ///< It was cancelled or failed: no pool worked longer on it than it was in.
  };
  /// The job has ended. Idempotent.
  void End(const base::Uid& uid, Price price = Price::kWhole);
  /// Those stages are done with the job: its place in pools of unknown cost is free. Idempotent.
  void Passed(const base::Uid& uid, const std::set<std::string>& stages);
  /// Up to `count` jobs that have begun (until Keep a job may have no record yet) and whose state
  /// was asked for longest ago; counts as asking now. Forgets jobs past their deadline.
  std::vector<base::Uid> NextToCheck(std::size_t count);
  /// The job is in.
  [[nodiscard]] bool Contains(const base::Uid& uid) const;
  [[nodiscard]] int in_flight() const;
  /// Of the pools that the capacity names.
  [[nodiscard]] std::vector<PoolLevel> levels() const;
  /// For NodeLoad: jobs asked for, by application, each once however often it was asked for; one
  /// that is refused first and let in later stays a rejected one. Those that began nowhere or whose
  /// deadline was too short are in no number.
  [[nodiscard]] std::vector<v1::Demand> demands() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace onepiece::admission
