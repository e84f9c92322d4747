// The request monitor admits or refuses a job by arithmetic, before anything of the job is decoded
// (docs/elasticity.md, "Admission"). The proxies and the simulator use the same class.
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
struct AdmissionRequest {
  base::Uid uid;
  std::string app_id;
  std::string tenant;  ///< The empty name is a tenant like any other.
  int priority = 0;    ///< -100 to 100.
  base::WallTime deadline;
  struct Stage {
    std::string stage;
    double units = 1;  ///< workflow::WorkUnits.
    std::vector<std::string> after;
    std::vector<double> terms;  ///< workflow::WorkTerms.
  };
  std::vector<Stage> stages;
};

struct RequestMonitorOptions {
  int max_jobs_in_flight = 256;
  /// The share of the measured capacity that is used, above 0. The rest makes up for errors of
  /// measurement.
  double admission_share = 0.95;
  /// The worker seconds that an idle pool saves up, as time of the whole pool.
  base::Duration burst = std::chrono::seconds(1);
  /// A pool admits nothing while it has more work queued than this and one job for each worker,
  /// because an estimate was wrong. It should be longer than reports are late, or pools run dry.
  base::Duration max_backlog = std::chrono::seconds(1);
};

/// The tokens of one pool.
struct PoolLevel {
  std::string pool;
  double seconds = 0;  ///< Worker seconds. Below 0 is debt.
};

/// Admits jobs by one token bucket for every pool, in worker seconds.
///
/// A bucket fills as fast as the pool computes (workers × admission_share × this proxy's share). A
/// job takes from each pool on its way the worker seconds that its stages will compute there. Jobs
/// therefore enter at the rate that the narrowest pool can sustain (Theorem 1 of
/// docs/elasticity.md), shared pools serve several applications, and a job pays for its steps and
/// shape, by the terms of its cost where these have been fitted. A bucket that is not empty admits
/// one job and may fall below zero. The next job then waits until the debt is paid off. A pool
/// without workers admits nothing.
///
/// Backlog. A bucket that is not full models the pool's queue. When more is queued than the model
/// says, a cost is too low, and each Update() lowers the bucket to what max_backlog leaves. Updates
/// never raise a bucket, because a report does not know the jobs that are under way.
///
/// Other proxies. What they have promised (PoolCapacity.others_debt_s) is work before ours: a pool
/// takes nothing while the promises of all proxies are more than one burst of the whole pool, and
/// they count in the estimate of a job's end. What was promised within the last report is not known
/// yet, so it is each proxy's share that bounds that time.
///
/// Unknown costs. A stage's cost is known once capacity::kMinSamples jobs were measured. It stays
/// as it was until new jobs are measured. Jobs pay nothing for an unknown cost, but only two such
/// jobs for each worker (× this proxy's share) may be in or before each pool on their way. Pools
/// that the capacity does not name limit nothing.
///
/// Tenants and priorities. Each tenant that has asked recently gets an equal share of the tokens
/// that come into a bucket, and a share that one tenant does not use goes to the others. A priority
/// below 0 gets only the tokens above half of the bucket. A priority above 0 may run up a debt of
/// one more burst. kMaxTenants tenants are told apart, and all others share one place.
///
/// Ownership: borrows `clock`, which must outlive it.
/// Threading: may be used from any thread.
/// Blocking: never waits. Admit() takes microseconds.
/// Invariants: in_flight() <= max_jobs_in_flight, unless SetLimits() has lowered it since.
class RequestMonitor {
 public:
  /// The largest number of applications in demands(): as many as a cluster may have (about 100
  /// bytes each). Those that are no longer in the capacity make room for new ones.
  static constexpr std::size_t kMaxApps = 1024;
  /// The largest number of pools in debts(). Smaller debts are left out.
  static constexpr std::size_t kMaxDebts = 256;
  /// The number of refused jobs whose next attempts are told from new jobs.
  static constexpr std::size_t kMaxRefused = 32768;

  RequestMonitor(RequestMonitorOptions options, base::Clock& clock);
  ~RequestMonitor();

  /// Replaces those two of RequestMonitorOptions. Jobs that are in stay in when the limit is below
  /// their number. Buckets follow the share with the next Update().
  void SetLimits(int max_jobs_in_flight, double admission_share);
  /// Takes newer numbers. Buckets keep their levels, and listed stages without numbers keep their
  /// last ones. Stages that `capacity` does not list become unknown.
  void Update(const v1::Capacity& capacity);

  /// Admits the job until End() or its deadline. A job that is in already is admitted at no cost.
  /// After each OK the caller calls Keep() or Withdraw().
  ///
  /// Errors: each has, as far as they are known, the metadata `pool` (the narrowest one),
  /// `retry_after_ms` (where waiting helps) and `headroom` (the other sets', "set-2=0.40,…").
  ///   - RESOURCE_EXHAUSTED (OVERLOADED): a bucket is empty.
  ///   - RESOURCE_EXHAUSTED (TENANT_SHARE): this tenant has had its fair share while others ask.
  ///   - RESOURCE_EXHAUSTED (QUOTA): max_jobs_in_flight are in.
  ///   - FAILED_PRECONDITION (DEADLINE_TOO_SHORT): the deadline is before the estimated end, which
  ///     the message and the metadata `estimate_ms` tell. The estimate is the debt of the pools on
  ///     the job's way plus the longest way through its stages. Transfers do not count, because
  ///     their times are differences between the wall clocks of two hosts.
  absl::Status Admit(const AdmissionRequest& request);
  /// Says that the admitted job has begun.
  void Keep(const base::Uid& uid);
  /// Says that this caller has not begun the admitted job. When all callers that were admitted with
  /// this uid say so, the job pays nothing and is out.
  void Withdraw(const base::Uid& uid);
  /// What a job pays that has ended.
  enum class Price {
    kWhole,  ///< Its whole estimated cost.
    /// At most the time for which it was in, because no pool worked on it for longer. For jobs that
    /// were cancelled or failed.
    kTime
  };
  /// Says that the job has ended. A second call has no effect.
  void End(const base::Uid& uid, Price price = Price::kWhole);
  /// Says that the job has passed those stages, which frees its places in pools of unknown cost. A
  /// second call has no effect.
  void Passed(const base::Uid& uid, const std::set<std::string>& stages);
  /// Returns up to `count` jobs whose state nobody has asked for the longest, and counts them as
  /// asked for now. It returns only jobs that have begun, because a job may have no record before
  /// Keep(). It also forgets jobs that are past their deadline.
  std::vector<base::Uid> NextToCheck(std::size_t count);
  /// Returns true while the job is in.
  [[nodiscard]] bool Contains(const base::Uid& uid) const;
  [[nodiscard]] int in_flight() const;
  /// Returns the levels of the pools that the capacity names.
  [[nodiscard]] std::vector<PoolLevel> levels() const;
  /// Returns the work that was admitted here and that the pools still have to do, by pool, for
  /// NodeLoad.
  [[nodiscard]] std::vector<v1::PoolDebt> debts() const;
  /// Returns the jobs asked for, by application, for NodeLoad. Each job counts once, however often
  /// it was asked for. A job that was refused first and admitted later stays a rejected one. Jobs
  /// that began nowhere, or whose deadline was too short, do not count.
  [[nodiscard]] std::vector<v1::Demand> demands() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace onepiece::admission
