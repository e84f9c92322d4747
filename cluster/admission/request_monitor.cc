#include "cluster/admission/request_monitor.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/admission/bucket.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/capacity/capacity_model.h"
#include "cluster/capacity/cost_fit.h"

namespace onepiece::admission {
namespace {

using Metadata = std::map<std::string, std::string>;

/// A tenant that has not asked for this long, and owes nothing, loses its share. It keeps the share
/// for longer when it was told to come back later.
constexpr base::Duration kTenantMemory = std::chrono::seconds(10);
constexpr double kMinRetryS = 0.01;
constexpr double kMaxRetryS = 600;
constexpr double kQuotaRetryS = 1;
constexpr base::Duration kMinBurst = std::chrono::milliseconds(1);
/// The part of the pool's depth that a proxy may save up for its next job, however small its share.
constexpr double kLeastDepth = 0.1;
/// While a cost is unknown, this many jobs for each worker may be on their way: one is computed,
/// and one comes next.
constexpr double kTrialsPerWorker = 2;
constexpr double kTrialRetryS = 0.5;
constexpr char kUnknownHint[] =
    ": until five jobs have been measured there, about two for each worker are let in at a time; "
    "where they take long, submit again when one has ended";
/// The longest time for which a reported backlog alone closes a pool.
constexpr double kMaxClosedS = 3600;
/// The limit of the other sets' headroom in the metadata.
constexpr std::size_t kMaxHeadroomBytes = 400;

double OrZero(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

/// What one stage of an application costs.
struct Cost {
  std::string pool;
  std::shared_ptr<Bucket> bucket;  ///< nullptr when the capacity does not name its pool.
  /// The last numbers that rest on enough jobs. `samples` is 0 before there were any.
  double samples = 0;
  double seconds_per_unit = 0, units_per_job = 0;
  std::vector<double> seconds_per_term;  ///< Empty: seconds_per_unit holds.

  /// The worker seconds of a job.
  [[nodiscard]] double Of(const AdmissionRequest::Stage& stage) const {
    // A proxy may know a newer workflow than the one that was measured.
    return capacity::CostByTerms(seconds_per_term, stage.terms)
        .value_or(OrZero(seconds_per_unit * OrZero(stage.units)));
  }
};
using Costs = std::map<std::string, std::map<std::string, Cost>>;  // By application and stage.

struct Charge {
  std::shared_ptr<Bucket> bucket;
  double seconds = 0;
  /// The stages in this pool whose cost is unknown and that the job has not passed yet.
  std::vector<std::string> unknown;
  [[nodiscard]] bool IsTrial() const { return !unknown.empty(); }
};

/// What a job would take from the buckets.
struct Bill {
  std::vector<Charge> charges;  ///< One for each pool that the capacity names.
  double work_s = 0;            ///< All stages. No way through them is longer.
};

struct Tenant {
  Place place = 0;
  base::MonotonicTime until;
};

/// What a job asks for, as Demand counts it.
struct Asked {
  double units = 0;
  std::vector<v1::StageTerms> terms;
};

struct Job {
  base::MonotonicTime deadline;
  std::uint64_t turn = 0;  ///< Key in State::turns, when kept.
  std::vector<Charge> charges;
  base::MonotonicTime since;  ///< When it was let in.
  std::string tenant;         ///< The tenant that has paid.
  std::string app_id;
  Asked asked;
  int callers = 1;    ///< Admitted callers that have said neither Keep nor Withdraw.
  bool kept = false;  ///< It has begun.
};

/// Remembers the last uids of many.
class RecentUids {
 public:
  /// Returns false when it remembers `uid` already.
  bool Insert(const base::Uid& uid) {
    if (!known_.insert(uid).second) return false;
    order_.push_back(uid);
    if (order_.size() > RequestMonitor::kMaxRefused) {
      known_.erase(order_.front());
      order_.pop_front();
    }
    return true;
  }
  [[nodiscard]] bool Contains(const base::Uid& uid) const { return known_.contains(uid); }

 private:
  std::unordered_set<base::Uid> known_;
  std::deque<base::Uid> order_;
};

/// The mean jobs of one pool.
struct PoolJobs {
  double largest_s = 0;               ///< The largest application's job, over its stages here.
  double weighted_s = 0, weight = 0;  ///< Single visits, weighted by samples.
  [[nodiscard]] double Mean() const { return weight > 0 ? weighted_s / weight : 0; }
};

/// Fewer jobs than kMinSamples prove nothing, because the first one includes load and warm-up.
bool IsKnown(const v1::StageCost& cost) {
  return cost.samples() >= capacity::kMinSamples && std::isfinite(cost.seconds_per_unit()) &&
         cost.seconds_per_unit() >= 0;
}

std::map<std::string, PoolJobs> JobsByPool(const Costs& costs) {
  std::map<std::string, PoolJobs> pools;
  for (const auto& [app, stages] : costs) {
    std::map<std::string, double> job_s;
    for (const auto& [stage, cost] : stages) {
      if (cost.samples == 0) continue;
      const double seconds = OrZero(cost.seconds_per_unit * cost.units_per_job);
      PoolJobs& pool = pools[cost.pool];
      pool.weighted_s += seconds * cost.samples;
      pool.weight += cost.samples;
      job_s[cost.pool] += seconds;
      pool.largest_s = std::max(pool.largest_s, job_s[cost.pool]);
    }
  }
  return pools;
}

const Cost* Find(const Costs& costs, const std::string& app, const std::string& stage) {
  const auto stages = costs.find(app);
  if (stages == costs.end()) return nullptr;
  const auto cost = stages->second.find(stage);
  return cost == stages->second.end() ? nullptr : &cost->second;
}

/// Its units are those of the stage that has the most.
Asked AskedBy(const AdmissionRequest& request) {
  Asked asked;
  for (const AdmissionRequest::Stage& stage : request.stages) {
    asked.units = std::max(asked.units, OrZero(stage.units));
    if (stage.terms.empty()) continue;
    v1::StageTerms& terms = asked.terms.emplace_back();
    terms.set_stage(stage.stage);
    for (const double term : stage.terms) terms.add_sums(OrZero(term));
  }
  return asked;
}

/// Adds a job to the demand. Sums of another formula, from before the workflow changed, begin anew.
void Add(const Asked& asked, v1::Demand& demand) {
  demand.set_units(demand.units() + asked.units);
  for (const v1::StageTerms& terms : asked.terms) {
    auto* const stages = demand.mutable_stage_terms();
    auto sums = std::ranges::find(*stages, terms.stage(), &v1::StageTerms::stage);
    if (sums == stages->end()) {
      *stages->Add() = terms;
    } else if (sums->sums_size() != terms.sums_size()) {
      *sums = terms;
    } else {
      for (int i = 0; i < terms.sums_size(); ++i) sums->set_sums(i, sums->sums(i) + terms.sums(i));
    }
  }
}

/// Lists the other sets, the one with the most room first.
std::string HeadroomText(const v1::Capacity& capacity) {
  std::vector<std::pair<double, std::string>> sets;
  for (const v1::SetHeadroom& set : capacity.sets()) {
    if (set.workflow_set() != capacity.workflow_set())
      sets.emplace_back(std::min(1.0, OrZero(set.headroom())), set.workflow_set());
  }
  std::ranges::sort(sets, std::greater<>());
  std::string text;
  for (const auto& [headroom, set] : sets) {
    const std::string one =
        absl::StrFormat("%s%s=%.2f", text.empty() ? "" : ",", set.c_str(), headroom);
    if (text.size() + one.size() > kMaxHeadroomBytes) break;
    text += one;
  }
  return text;
}

}  // namespace

// What everything below shares.
struct RequestMonitor::State {
  State(RequestMonitorOptions given, base::Clock& given_clock)
      : options(given),
        clock(given_clock),
        max_jobs(static_cast<std::size_t>(std::max(1, given.max_jobs_in_flight))),
        admission_share(given.admission_share) {}

  const RequestMonitorOptions options;  // The two below may have changed since.
  base::Clock& clock;
  mutable base::Mutex mutex;
  std::size_t max_jobs ABSL_GUARDED_BY(mutex);
  double admission_share ABSL_GUARDED_BY(mutex);
  // Those that the capacity names, and those that it no longer names but that are not full yet:
  // they may come back.
  std::map<std::string, std::shared_ptr<Bucket>> buckets ABSL_GUARDED_BY(mutex);
  std::set<std::string> named ABSL_GUARDED_BY(mutex);
  Costs costs ABSL_GUARDED_BY(mutex);
  std::string headroom ABSL_GUARDED_BY(mutex);
  std::map<std::string, Tenant, std::less<>> tenants ABSL_GUARDED_BY(mutex);
  base::MonotonicTime others_until ABSL_GUARDED_BY(mutex);  // For the tenants beyond kMaxTenants.
  std::vector<Place> places ABSL_GUARDED_BY(mutex);  // The places of tenants that have an account.
  std::unordered_map<base::Uid, Job> jobs ABSL_GUARDED_BY(mutex);
  std::map<std::uint64_t, base::Uid> turns ABSL_GUARDED_BY(mutex);  // Jobs that have begun.
  std::set<std::pair<base::MonotonicTime, base::Uid>> deadlines ABSL_GUARDED_BY(mutex);
  std::uint64_t next_turn ABSL_GUARDED_BY(mutex) = 0;
  std::map<std::string, v1::Demand> demands ABSL_GUARDED_BY(mutex);
  RecentUids refused ABSL_GUARDED_BY(mutex);

  void SetCosts(const v1::Capacity& capacity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  [[nodiscard]] double LevelBy(const v1::PoolCapacity& pool, const PoolJobs& mean,
                               const Bucket::Size& size) const;
  void SetPool(const v1::PoolCapacity& pool, double share, const PoolJobs& mean,
               base::MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  Place Enter(const std::string& tenant, base::MonotonicTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Remember(const std::string& tenant, base::MonotonicTime until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void ForgetTenants(base::MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void ForgetOverdue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void GiveBack(const Job& job, double used_s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Remove(const base::Uid& uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  Bill BillFor(const AdmissionRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  double UnloadedLatency(const AdmissionRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status CheckDeadline(const AdmissionRequest& request, const Bill& bill, base::Duration left,
                             base::MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status CheckBuckets(const AdmissionRequest& request, const Bill& bill, Place place,
                            base::MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status CheckQuota() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status Refuse(absl::StatusCode code, std::string_view reason, const std::string& message,
                      const std::string& pool, double retry_s, Metadata metadata = {}) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  v1::Demand* DemandOf(const std::string& app) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void CountRefused(const AdmissionRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Begin(const base::Uid& uid, Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
};

// --- What the capacity says.

void RequestMonitor::State::SetCosts(const v1::Capacity& capacity) {
  // A stage that is no longer measured keeps its cost. That happens when nobody asks for its
  // application, and when a leader is new.
  const Costs before = std::exchange(costs, {});
  for (const v1::StageCost& told : capacity.costs()) {
    Cost& cost = costs[told.app_id()][told.stage()];
    if (IsKnown(told)) {
      cost = {.pool = "",
              .bucket = nullptr,
              .samples = static_cast<double>(told.samples()),
              .seconds_per_unit = told.seconds_per_unit(),
              .units_per_job = OrZero(told.units_per_job()),
              .seconds_per_term = {told.seconds_per_term().begin(), told.seconds_per_term().end()}};
    } else if (const Cost* last = Find(before, told.app_id(), told.stage()); last != nullptr) {
      cost = *last;
    }
    cost.pool = told.pool();
  }
}

// The bucket is a model of the pool's queue: what it lacks to be full is what should be queued. A
// cost that is too low lets the real queue grow beside the model, so the reported queue corrects
// it. Only downwards: jobs that are under way, and not yet reported, are in the model alone.
double RequestMonitor::State::LevelBy(const v1::PoolCapacity& pool, const PoolJobs& mean,
                                      const Bucket::Size& size) const {
  if (pool.workers() <= 0) return 0;
  const double backlog_s =
      OrZero(static_cast<double>(pool.queued_jobs())) * mean.Mean() / pool.workers();
  const double allowed_s = base::ToSeconds(options.max_backlog) + mean.Mean();
  const double spare_s = allowed_s - backlog_s;
  // With nothing queued the bucket may be full, also one that is deeper than its rate.
  if (spare_s > 0) return std::max(size.rate, size.depth / allowed_s) * spare_s;
  return size.rate * std::max(spare_s, -kMaxClosedS);
}

void RequestMonitor::State::SetPool(const v1::PoolCapacity& pool, double share,
                                    const PoolJobs& mean, base::MonotonicTime now) {
  const double workers = std::max(0, pool.workers());
  Bucket::Size size;
  size.pool_rate = workers * admission_share;
  size.pool_depth = size.pool_rate * base::ToSeconds(std::max(options.burst, kMinBurst));
  size.rate = size.pool_rate * share;
  // Jobs do not come evenly to proxies that each have little, so each may save up one.
  size.depth =
      std::max(size.pool_depth * share, std::min(mean.Mean(), kLeastDepth * size.pool_depth));
  size.job = mean.largest_s;
  size.trials = std::max(1, static_cast<int>(std::lround(kTrialsPerWorker * workers * share)));
  auto& bucket = buckets[pool.pool()];
  if (bucket == nullptr) {
    bucket = std::make_shared<Bucket>(pool.pool(), size, now);
  } else {
    bucket->Resize(size, now);
  }
  named.insert(pool.pool());
  bucket->Lower(LevelBy(pool, mean, size), now);
  bucket->SetOthers(OrZero(pool.others_debt_s()), now);
}

void RequestMonitor::SetLimits(int max_jobs_in_flight, double admission_share) {
  const base::MutexLock lock(state_->mutex);
  state_->max_jobs = static_cast<std::size_t>(std::max(1, max_jobs_in_flight));
  state_->admission_share = admission_share;
}

void RequestMonitor::Update(const v1::Capacity& capacity) {
  const bool shared = std::isfinite(capacity.share()) && capacity.share() > 0;
  const double share = shared ? std::min(1.0, capacity.share()) : 1;
  std::string headroom = HeadroomText(capacity);
  const base::MutexLock lock(state_->mutex);
  const base::MonotonicTime now = state_->clock.Now();
  state_->headroom = std::move(headroom);
  state_->SetCosts(capacity);
  const std::map<std::string, PoolJobs> jobs = JobsByPool(state_->costs);
  state_->named.clear();
  for (const v1::PoolCapacity& pool : capacity.pools()) {
    const auto mean = jobs.find(pool.pool());
    state_->SetPool(pool, share, mean == jobs.end() ? PoolJobs() : mean->second, now);
  }
  for (auto& [app, stages] : state_->costs) {
    for (auto& [stage, cost] : stages)
      cost.bucket = state_->named.contains(cost.pool) ? state_->buckets.at(cost.pool) : nullptr;
  }
  std::erase_if(state_->buckets,
                [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
                  if (state_->named.contains(entry.first)) return false;
                  entry.second->Refill(now);
                  return entry.second->IsIdle();
                });
  state_->ForgetTenants(now);
}

// --- Tenants.

Place RequestMonitor::State::Enter(const std::string& tenant, base::MonotonicTime now) {
  const base::MonotonicTime until = now + kTenantMemory;
  if (const auto known = tenants.find(tenant); known != tenants.end()) {
    known->second.until = std::max(known->second.until, until);
    return known->second.place;
  }
  ForgetTenants(now);
  if (tenants.size() >= kMaxTenants) {
    if (std::ranges::find(places, kMaxTenants) == places.end()) places.push_back(kMaxTenants);
    others_until = until;
    return kMaxTenants;
  }
  Place place = 0;
  while (std::ranges::find(places, place) != places.end()) ++place;
  tenants.emplace(tenant, Tenant{place, until});
  places.push_back(place);
  return place;
}

void RequestMonitor::State::Remember(const std::string& tenant, base::MonotonicTime until) {
  const auto known = tenants.find(tenant);
  base::MonotonicTime& kept = known == tenants.end() ? others_until : known->second.until;
  kept = std::max(kept, until);
}

void RequestMonitor::State::ForgetTenants(base::MonotonicTime now) {
  // A tenant in debt stays, or it could get rid of its debt by pausing.
  const auto over = [&](Place place,
                        base::MonotonicTime until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return until <= now && std::ranges::none_of(buckets, [&](const auto& entry) {
             return entry.second->Owes(place);
           });
  };
  const auto forget = [&](Place place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (const auto& [pool, bucket] : buckets) bucket->ForgetTenant(place);
    std::erase(places, place);
  };
  for (auto tenant = tenants.begin(); tenant != tenants.end();) {
    const auto [place, until] = tenant->second;
    if (over(place, until)) {
      forget(place);
      tenant = tenants.erase(tenant);
    } else {
      ++tenant;
    }
  }
  if (over(kMaxTenants, others_until)) forget(kMaxTenants);
}

// --- One job.

Bill RequestMonitor::State::BillFor(const AdmissionRequest& request) const {
  Bill bill;
  for (const AdmissionRequest::Stage& stage : request.stages) {
    const Cost* cost = Find(costs, request.app_id, stage.stage);
    if (cost == nullptr) continue;
    const double seconds = cost->Of(stage);
    bill.work_s += seconds;
    if (cost->bucket == nullptr) continue;
    auto charge = std::ranges::find(bill.charges, cost->bucket, &Charge::bucket);
    if (charge == bill.charges.end()) {
      bill.charges.push_back({.bucket = cost->bucket});
      charge = std::prev(bill.charges.end());
    }
    charge->seconds += seconds;
    if (cost->samples == 0) charge->unknown.push_back(stage.stage);
  }
  return bill;
}

double RequestMonitor::State::UnloadedLatency(const AdmissionRequest& request) const {
  capacity::App app;
  for (const AdmissionRequest::Stage& stage : request.stages) {
    capacity::StageDemand demand{.stage = stage.stage, .after = stage.after};
    const Cost* cost = Find(costs, request.app_id, stage.stage);
    if (cost != nullptr && cost->samples > 0) {
      demand.seconds_per_job = cost->Of(stage);
      demand.samples = 1;
    }
    app.stages.push_back(std::move(demand));
  }
  return capacity::UnloadedLatency(app);
}

absl::Status RequestMonitor::State::Refuse(absl::StatusCode code, std::string_view reason,
                                           const std::string& message, const std::string& pool,
                                           double retry_s, Metadata metadata) const {
  if (!pool.empty()) metadata["pool"] = pool;
  if (!headroom.empty()) metadata["headroom"] = headroom;
  if (retry_s > 0) {
    const double bounded = std::clamp(retry_s, kMinRetryS, kMaxRetryS);
    metadata["retry_after_ms"] = absl::StrCat(static_cast<std::int64_t>(std::ceil(bounded * 1e3)));
  }
  return base::MakeError(code, reason, message, std::move(metadata));
}

absl::Status RequestMonitor::State::CheckDeadline(const AdmissionRequest& request, const Bill& bill,
                                                  base::Duration left, base::MonotonicTime now) {
  double debt_s = 0;
  const Charge* narrowest = nullptr;
  for (const Charge& charge : bill.charges) {
    charge.bucket->Refill(now);
    const double wait = charge.bucket->DebtWait();
    const bool narrower = narrowest == nullptr || wait > debt_s ||
                          (wait == debt_s && charge.seconds > narrowest->seconds);
    if (narrower) narrowest = &charge;
    debt_s = std::max(debt_s, wait);
  }
  const double left_s = base::ToSeconds(left);
  // This cheap test suffices for most jobs: the sum of all stages is at least the longest way.
  if (debt_s + bill.work_s <= left_s) return absl::OkStatus();
  const double estimate_s = debt_s + UnloadedLatency(request);
  if (estimate_s <= left_s) return absl::OkStatus();
  const std::string message = absl::StrFormat(
      "the job would take %.3f s, its deadline is in %.3f s: give it more time, or "
      "ask for less work",
      estimate_s, std::max(0.0, left_s));
  const std::string estimate_ms =
      absl::StrCat(static_cast<std::int64_t>(std::ceil(std::min(estimate_s, 1e9) * 1e3)));
  const bool waiting_helps = estimate_s - debt_s <= left_s;
  return Refuse(absl::StatusCode::kFailedPrecondition, "DEADLINE_TOO_SHORT", message,
                narrowest == nullptr ? "" : narrowest->bucket->pool(), waiting_helps ? debt_s : 0,
                {{"estimate_ms", estimate_ms}});
}

absl::Status RequestMonitor::State::CheckBuckets(const AdmissionRequest& request, const Bill& bill,
                                                 Place place, base::MonotonicTime now) {
  Bucket::Answer worst;
  const Bucket* narrowest = nullptr;
  bool unknown = false;
  for (const Charge& charge : bill.charges) {
    Bucket::Answer answer = charge.bucket->Ask(place, places, request.priority, now);
    // Trials of jobs that never ended end with their deadlines, so that an application is not shut
    // out for good.
    if (charge.IsTrial() && !charge.bucket->MayTry()) ForgetOverdue();
    const bool tried = charge.IsTrial() && !charge.bucket->MayTry() && answer.wait_s < kTrialRetryS;
    if (tried) answer = {Bucket::Verdict::kEmpty, kTrialRetryS};
    if (answer.verdict == Bucket::Verdict::kTake) continue;
    if (narrowest != nullptr && answer.wait_s <= worst.wait_s) continue;
    worst = answer;
    narrowest = charge.bucket.get();
    unknown = tried;
  }
  if (narrowest == nullptr) return absl::OkStatus();
  // The tenant keeps its share until it comes back, or its part would go to others meanwhile.
  const double retry_s = std::clamp(worst.wait_s, kMinRetryS, kMaxRetryS);
  Remember(request.tenant, now + base::FromSeconds(2 * retry_s));
  const bool share = worst.verdict == Bucket::Verdict::kShare;
  return Refuse(absl::StatusCode::kResourceExhausted, share ? "TENANT_SHARE" : "OVERLOADED",
                absl::StrCat(share ? "this tenant has had its share of " : "no room in ",
                             narrowest->pool(), " now", unknown ? kUnknownHint : ""),
                narrowest->pool(), retry_s);
}

absl::Status RequestMonitor::State::CheckQuota() {
  if (jobs.size() >= max_jobs) ForgetOverdue();
  if (jobs.size() < max_jobs) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "QUOTA",
                absl::StrCat("this proxy has ", max_jobs, " jobs in flight, its limit"), "",
                kQuotaRetryS, {{"limit", absl::StrCat(max_jobs)}});
}

v1::Demand* RequestMonitor::State::DemandOf(const std::string& app) {
  const auto known = demands.find(app);
  if (known != demands.end()) return &known->second;
  if (demands.size() >= kMaxApps) {
    std::erase_if(demands, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      return !costs.contains(entry.first);
    });
  }
  if (demands.size() >= kMaxApps) return nullptr;
  v1::Demand& demand = demands[app];
  demand.set_app_id(app);
  return &demand;
}

void RequestMonitor::State::CountRefused(const AdmissionRequest& request) {
  if (!refused.Insert(request.uid)) return;
  v1::Demand* demand = DemandOf(request.app_id);
  if (demand == nullptr) return;
  demand->set_rejected(demand->rejected() + 1);
  Add(AskedBy(request), *demand);
}

void RequestMonitor::State::Begin(const base::Uid& uid, Job& job) {
  if (std::exchange(job.kept, true)) return;
  job.turn = next_turn++;
  turns.emplace(job.turn, uid);
  if (refused.Contains(uid)) return;
  v1::Demand* demand = DemandOf(job.app_id);
  if (demand == nullptr) return;
  demand->set_admitted(demand->admitted() + 1);
  Add(job.asked, *demand);
}

absl::Status RequestMonitor::Admit(const AdmissionRequest& request) {
  const base::MutexLock lock(state_->mutex);
  if (const auto in = state_->jobs.find(request.uid); in != state_->jobs.end()) {
    ++in->second.callers;
    return absl::OkStatus();
  }
  const base::MonotonicTime now = state_->clock.Now();
  // The wall clock is read once. Setting it later must not end the jobs that are in.
  const base::Duration left = request.deadline - state_->clock.WallNow();
  const Place place = state_->Enter(request.tenant, now);
  Bill bill = state_->BillFor(request);
  absl::Status status = state_->CheckDeadline(request, bill, left, now);
  if (status.ok()) status = state_->CheckBuckets(request, bill, place, now);
  if (status.ok()) status = state_->CheckQuota();
  if (absl::IsResourceExhausted(status)) state_->CountRefused(request);
  if (!status.ok()) return status;
  for (const Charge& charge : bill.charges) {
    charge.bucket->Take(place, charge.seconds);
    if (charge.IsTrial()) charge.bucket->Try();
  }
  state_->jobs.emplace(request.uid, Job{.deadline = now + left,
                                        .charges = std::move(bill.charges),
                                        .since = now,
                                        .tenant = request.tenant,
                                        .app_id = request.app_id,
                                        .asked = AskedBy(request)});
  state_->deadlines.emplace(now + left, request.uid);
  return status;
}

// --- Jobs that are in.

RequestMonitor::RequestMonitor(RequestMonitorOptions options, base::Clock& clock)
    : state_(std::make_unique<State>(options, clock)) {}

RequestMonitor::~RequestMonitor() = default;

/// Gives back what the job has paid beyond `used_s` in each pool.
void RequestMonitor::State::GiveBack(const Job& job, double used_s) {
  const auto payer = tenants.find(job.tenant);
  const Place place = payer == tenants.end() ? kMaxTenants : payer->second.place;
  for (const Charge& charge : job.charges)
    charge.bucket->GiveBack(place, std::max(0.0, charge.seconds - used_s));
}

void RequestMonitor::State::Remove(const base::Uid& uid) {
  const auto job = jobs.find(uid);
  for (const Charge& charge : job->second.charges) {
    charge.bucket->End(charge.seconds);
    if (charge.IsTrial()) charge.bucket->EndTry();
  }
  if (job->second.kept) turns.erase(job->second.turn);
  deadlines.erase({job->second.deadline, uid});
  jobs.erase(job);
}

void RequestMonitor::State::ForgetOverdue() {
  const base::MonotonicTime now = clock.Now();
  while (!deadlines.empty() && deadlines.begin()->first <= now) {
    const base::Uid uid = deadlines.begin()->second;
    Remove(uid);
  }
}

void RequestMonitor::Keep(const base::Uid& uid) {
  const base::MutexLock lock(state_->mutex);
  const auto job = state_->jobs.find(uid);
  if (job != state_->jobs.end()) state_->Begin(uid, job->second);
}

void RequestMonitor::Withdraw(const base::Uid& uid) {
  const base::MutexLock lock(state_->mutex);
  const auto found = state_->jobs.find(uid);
  if (found == state_->jobs.end()) return;
  Job& job = found->second;
  if (job.kept || --job.callers > 0) return;
  state_->GiveBack(job, 0);
  state_->Remove(uid);
}

void RequestMonitor::End(const base::Uid& uid, Price price) {
  const base::MutexLock lock(state_->mutex);
  const auto job = state_->jobs.find(uid);
  if (job == state_->jobs.end()) return;
  state_->Begin(uid, job->second);
  if (price == Price::kTime)
    state_->GiveBack(job->second, base::ToSeconds(state_->clock.Now() - job->second.since));
  state_->Remove(uid);
}

void RequestMonitor::Passed(const base::Uid& uid, const std::set<std::string>& stages) {
  const base::MutexLock lock(state_->mutex);
  const auto job = state_->jobs.find(uid);
  if (job == state_->jobs.end()) return;
  for (Charge& charge : job->second.charges) {
    if (!charge.IsTrial()) continue;
    std::erase_if(charge.unknown, [&](const auto& stage) { return stages.contains(stage); });
    if (!charge.IsTrial()) charge.bucket->EndTry();
  }
}

std::vector<base::Uid> RequestMonitor::NextToCheck(std::size_t count) {
  const base::MutexLock lock(state_->mutex);
  state_->ForgetOverdue();
  auto& turns = state_->turns;
  std::vector<base::Uid> uids;
  for (count = std::min(count, turns.size()); count > 0; --count) {
    const base::Uid uid = turns.begin()->second;
    turns.erase(turns.begin());
    state_->jobs.at(uid).turn = state_->next_turn;
    turns.emplace(state_->next_turn++, uid);
    uids.push_back(uid);
  }
  return uids;
}

bool RequestMonitor::Contains(const base::Uid& uid) const {
  const base::MutexLock lock(state_->mutex);
  return state_->jobs.contains(uid);
}

int RequestMonitor::in_flight() const {
  const base::MutexLock lock(state_->mutex);
  return static_cast<int>(state_->jobs.size());
}

std::vector<PoolLevel> RequestMonitor::levels() const {
  const base::MutexLock lock(state_->mutex);
  const base::MonotonicTime now = state_->clock.Now();
  std::vector<PoolLevel> levels;
  for (const std::string& pool : state_->named) {
    Bucket& bucket = *state_->buckets.at(pool);
    bucket.Refill(now);
    levels.push_back({pool, bucket.level()});
  }
  return levels;
}

std::vector<v1::PoolDebt> RequestMonitor::debts() const {
  // Less than a microsecond of a worker is rounding.
  constexpr double kNoDebt = 1e-6;
  std::vector<v1::PoolDebt> debts;
  {
    const base::MutexLock lock(state_->mutex);
    const base::MonotonicTime now = state_->clock.Now();
    for (const auto& [pool, bucket] : state_->buckets) {
      bucket->Refill(now);
      if (!(bucket->promised() > kNoDebt)) continue;
      v1::PoolDebt& debt = debts.emplace_back();
      debt.set_pool(pool);
      debt.set_seconds(bucket->promised());
    }
  }
  if (debts.size() <= kMaxDebts) return debts;
  const auto last = debts.begin() + kMaxDebts;
  std::ranges::nth_element(debts, last, std::greater<>(), &v1::PoolDebt::seconds);
  debts.erase(last, debts.end());
  return debts;
}

std::vector<v1::Demand> RequestMonitor::demands() const {
  const base::MutexLock lock(state_->mutex);
  std::vector<v1::Demand> demands;
  for (const auto& [app, demand] : state_->demands) demands.push_back(demand);
  return demands;
}

}  // namespace onepiece::admission
