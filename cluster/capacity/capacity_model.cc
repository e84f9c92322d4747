#include "cluster/capacity/capacity_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace onepiece::capacity {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// 95 % of a normal distribution lie within this many standard deviations.
constexpr double kBand = 1.96;
// A pool's load is known when at least this share of the offered jobs comes from measured
// applications. One rare application then does not make the numbers of the others worthless.
constexpr double kMeasuredShare = 0.9;
// Erlang's recursion takes one step for each worker. Beyond this many, workers count as fewer and
// faster ones, which bounds the steps.
constexpr double kMaxServers = 100'000;

double OrZero(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

bool IsKnown(const StageDemand& demand) {
  const auto possible = [](double value) { return std::isfinite(value) && value >= 0; };
  return demand.samples > 0 && possible(demand.seconds_per_job) && possible(demand.variation) &&
         possible(demand.transfer_s);
}

const Pool* FindPool(const Model& model, const std::string& id) {
  const auto pool =
      std::ranges::find_if(model.pools, [&](const Pool& other) { return other.id == id; });
  return pool == model.pools.end() ? nullptr : &*pool;
}

double WorkersOf(const Model& model, const std::string& pool) {
  const Pool* found = FindPool(model, pool);
  return found == nullptr ? 0 : OrZero(found->workers);
}

// The part of a pool's offered work about which something is known.
struct Offered {
  double jobs_per_s = 0;
  double load = 0;     // Worker seconds per second.
  double squares = 0;  // Σ λ E[S²].
  double error2 = 0;   // Variance of `load`, because it rests on means of few jobs.
};

Offered OfferedTo(const Model& model, const std::string& pool) {
  Offered sum;
  if (FindPool(model, pool) == nullptr) return sum;
  for (const App& app : model.apps) {
    const double rate = OrZero(app.arrivals_per_s);
    if (rate == 0) continue;
    for (const StageDemand& demand : app.stages) {
      if (demand.pool != pool || !IsKnown(demand)) continue;
      const double load = rate * demand.seconds_per_job;
      const double spread = load * demand.variation;
      sum.jobs_per_s += rate;
      sum.load += load;
      sum.squares += load * demand.seconds_per_job * (1 + demand.variation * demand.variation);
      sum.error2 += spread * spread / static_cast<double>(demand.samples);
    }
  }
  return sum;
}

// Returns the probability that a job waits in M/M/c with a load of `erlangs` < c (Erlang C). It
// goes by Erlang B's recursion, because every step of that stays within [0, 1] and cannot overflow
// as the powers and factorials of the closed form do.
double ProbabilityOfWaiting(double servers, double erlangs) {
  double blocked = 1;
  for (double c = 1; c <= servers; ++c) blocked = erlangs * blocked / (c + erlangs * blocked);
  const double utilization = erlangs / servers;
  return blocked / (1 - utilization * (1 - blocked));
}

}  // namespace

double Utilization(const Model& model, const std::string& pool) {
  const double load = OfferedTo(model, pool).load;
  if (load == 0) return 0;
  const double workers = WorkersOf(model, pool);
  return workers > 0 ? load / workers : kInfinity;
}

std::map<std::string, double> Loads(const Model& model) {
  std::map<std::string, double> loads;
  for (const Pool& pool : model.pools) loads[pool.id] = 0;
  for (const App& app : model.apps) {
    for (const StageDemand& demand : app.stages) {
      const auto load = loads.find(demand.pool);
      if (load == loads.end() || !IsKnown(demand)) continue;
      load->second += OrZero(app.arrivals_per_s) * demand.seconds_per_job;
    }
  }
  return loads;
}

std::map<std::string, double> Utilizations(const Model& model) {
  const std::map<std::string, double> loads = Loads(model);
  std::map<std::string, double> utilizations;
  for (const Pool& pool : model.pools) {
    const double load = loads.at(pool.id), workers = OrZero(pool.workers);
    utilizations.try_emplace(pool.id, load == 0 ? 0 : workers > 0 ? load / workers : kInfinity);
  }
  return utilizations;
}

Narrowest FindNarrowest(const Model& model) {
  Narrowest narrowest{.pool = "", .scale = kInfinity};
  for (const Pool& pool : model.pools) {
    const double load = OfferedTo(model, pool.id).load;
    if (load == 0) continue;
    const double scale = WorkersOf(model, pool.id) / load;
    if (narrowest.pool.empty() || scale < narrowest.scale) narrowest = {pool.id, scale};
  }
  return narrowest;
}

double SustainableRate(const Model& model, const App& app) {
  // Stages of one application may share a pool, so their seconds add up before the division.
  std::map<std::string, double> seconds;
  for (const StageDemand& demand : app.stages) {
    if (WorkersOf(model, demand.pool) == 0) return 0;
    if (IsKnown(demand)) seconds[demand.pool] += demand.seconds_per_job;
  }
  double rate = kInfinity;
  for (const auto& [pool, per_job] : seconds) {
    if (per_job > 0) rate = std::min(rate, WorkersOf(model, pool) / per_job);
  }
  return std::isfinite(rate) ? rate : 0;
}

// Wq = C(c, a) · E[S] / (c (1 − ρ)) · (Ca² + Cs²) / 2 with Poisson arrivals, Ca² = 1, and
// 1 + Cs² = E[S²] / E[S]² over the mix of applications.
double MeanWait(const Model& model, const std::string& pool) {
  const Offered offered = OfferedTo(model, pool);
  if (offered.load == 0) return 0;
  const double workers = WorkersOf(model, pool);
  const double utilization = workers > 0 ? offered.load / workers : kInfinity;
  if (utilization >= 1) return kInfinity;
  const double servers = std::clamp(std::ceil(workers), 1.0, kMaxServers);
  const double waits = ProbabilityOfWaiting(servers, utilization * servers);
  const double mean = offered.load / offered.jobs_per_s;
  const double spread = offered.squares / offered.jobs_per_s / (mean * mean);
  const double wait = waits * mean / (workers * (1 - utilization)) * spread / 2;
  return std::isfinite(wait) ? wait : kInfinity;
}

double UnloadedLatency(const App& app) {
  std::map<std::string, double> ends;
  double latest = 0;
  for (const StageDemand& demand : app.stages) {
    double begin = 0;
    for (const std::string& earlier : demand.after) {
      // `ends` holds only the stages before this one. A name of a later stage, of this stage or of
      // no stage is therefore ignored, and a cycle cannot arise.
      if (const auto end = ends.find(earlier); end != ends.end())
        begin = std::max(begin, end->second);
    }
    const double own = IsKnown(demand) ? demand.seconds_per_job + demand.transfer_s : 0;
    latest = std::max(latest, begin + own);
    ends.insert_or_assign(demand.stage, begin + own);
  }
  return latest;
}

double WorkersFor(const Model& model, const std::string& pool, double threshold) {
  const double load = OfferedTo(model, pool).load;
  if (load == 0) return 0;
  return threshold > 0 ? load / threshold : kInfinity;  // Also infinite when threshold is NaN.
}

std::vector<std::string> PoolsWithoutData(const Model& model) {
  std::vector<std::string> without;
  for (const Pool& pool : model.pools) {
    double asked = 0, measured = 0;
    std::uint64_t samples = 0;
    for (const App& app : model.apps) {
      for (const StageDemand& demand : app.stages) {
        if (demand.pool != pool.id) continue;
        asked += OrZero(app.arrivals_per_s);
        if (!IsKnown(demand) || OrZero(app.arrivals_per_s) == 0) continue;
        measured += app.arrivals_per_s;
        samples += std::min(demand.samples, kMinSamples);
      }
    }
    if (asked > 0 && (samples < kMinSamples || measured < kMeasuredShare * asked))
      without.push_back(pool.id);
  }
  return without;
}

Estimate UtilizationBand(const Model& model, const std::string& pool) {
  const double value = Utilization(model, pool);
  if (!std::isfinite(value) || value == 0) return {value, value, value};
  const Offered offered = OfferedTo(model, pool);
  const double half = kBand * std::sqrt(offered.error2) / WorkersOf(model, pool);
  return {value, std::max(0.0, value - half), value + half};
}

}  // namespace onepiece::capacity
