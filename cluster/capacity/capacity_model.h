// The capacity model: what pools of instances can take, by arithmetic (paper §5, theorem 1). The
// proxies' admission, the elastic policy, plans' predictions and the simulator all use this one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace onepiece::capacity {

/// Instances that are interchangeable for some stages of some applications.
struct Pool {
  std::string id;
  double workers = 0;  ///< Jobs computed at a time, over all its instances.
};

/// What jobs of one application take from one pool, on average.
struct StageDemand {
  std::string stage;
  std::string pool;            ///< Pool::id.
  double seconds_per_job = 0;  ///< Of one worker.
  double variation = 0;        ///< Standard deviation of that over its mean.
  double transfer_s = 0;       ///< From the sender's encoding to arrival.
  std::uint64_t samples = 0;   ///< Jobs measured; 0: the numbers mean nothing.
  /// Stages of the application whose outputs it takes, which App::stages has before it; others are
  /// ignored. Empty: an entrance.
  std::vector<std::string> after;
};

struct App {
  std::string id;
  double arrivals_per_s = 0;  ///< Offered: what was admitted and what was rejected.
  std::vector<StageDemand> stages;
};

/// One workflow set. Plain values; all functions below are pure and never fail: what names a pool
/// that does not exist, or is negative, infinite or NaN, counts as nothing known (samples 0).
struct Model {
  std::vector<Pool> pools;
  std::vector<App> apps;
};

/// Offered worker seconds per second over workers: ρ of that pool. Infinite with work but no
/// workers, 0 without work.
double Utilization(const Model& model, const std::string& pool);

/// Of every pool of the model at once, by its id: offered worker seconds per second, and the same
/// over its workers. For who asks about many pools.
std::map<std::string, double> Loads(const Model& model);
std::map<std::string, double> Utilizations(const Model& model);

struct Narrowest {
  std::string pool;  ///< Empty: nothing is offered.
  double scale = 0;  ///< All offered rates times this just fit; infinite when nothing is offered.
};
/// The pool that limits the present mix. Theorem 1 for n stages, several workers, shared pools:
/// scale = min over pools of workers / Σ_apps λ_app × seconds_app,pool.
Narrowest FindNarrowest(const Model& model);

/// Jobs/s of one application alone, if all pools were its own: min over its pools of
/// workers / seconds per job. With one worker for each stage: 1 / max T. 0 when it can't be served.
double SustainableRate(const Model& model, const App& app);

/// Mean wait in front of a pool (s): M/G/c by Allen and Cunneen's approximation, with the demand's
/// spread. Infinite at ρ >= 1.
double MeanWait(const Model& model, const std::string& pool);

/// Time of a job that waits nowhere: the longest way through its stages, compute and transfer (s).
double UnloadedLatency(const App& app);

/// The workers that `pool` needs for what is offered at a utilisation of at most `threshold`.
double WorkersFor(const Model& model, const std::string& pool, double threshold);

/// Jobs that a pool's demand must rest on before anybody draws conclusions.
inline constexpr std::uint64_t kMinSamples = 5;
/// Pools with offered work of which fewer jobs than kMinSamples were measured, or less than nine
/// tenths of what is offered: of some application nothing is known.
std::vector<std::string> PoolsWithoutData(const Model& model);

struct Estimate {
  double value = 0, low = 0, high = 0;
};
/// ρ with the band that the measured spread of compute times allows: ± 1.96 × variation / √samples.
Estimate UtilizationBand(const Model& model, const std::string& pool);

}  // namespace onepiece::capacity
