// The capacity model calculates what pools of instances can do (docs/elasticity.md, "Capacity
// model"). The proxies' admission, the elastic policy, the plans' predictions and the simulator all
// use it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace onepiece::capacity {

/// Instances that are interchangeable for some stages of some applications.
struct Pool {
  std::string id;
  double workers = 0;  ///< How many jobs all its instances compute at the same time.
};

/// What jobs of one application take from one pool, on average.
struct StageDemand {
  std::string stage;
  std::string pool;            ///< Pool::id.
  double seconds_per_job = 0;  ///< Seconds of one worker.
  double variation = 0;        ///< Standard deviation of those seconds over their mean.
  double transfer_s = 0;       ///< From the sender's encoding to arrival.
  std::uint64_t samples = 0;   ///< Measured jobs. 0 means that the other numbers say nothing.
  /// The stages whose outputs this one takes. The functions below ignore a stage that does not come
  /// earlier in App::stages. Empty means that this stage is an entrance.
  std::vector<std::string> after;
};

struct App {
  std::string id;
  double arrivals_per_s = 0;  ///< Offered jobs, admitted and rejected ones.
  std::vector<StageDemand> stages;
};

/// One workflow set, as plain values.
///
/// Threading: all functions below are pure.
/// Errors: none. A demand counts as unknown (samples 0) when it names a pool that does not exist or
/// has a number that is negative, infinite or NaN.
struct Model {
  std::vector<Pool> pools;
  std::vector<App> apps;
};

/// Returns ρ of a pool: the offered worker seconds per second divided by its workers. It is 0
/// without work, and infinite with work but without workers.
double Utilization(const Model& model, const std::string& pool);

/// These return numbers of all pools at once, by pool id, for callers that ask about many pools.
/// Loads() has the offered worker seconds per second, and Utilizations() has them divided by the
/// workers.
std::map<std::string, double> Loads(const Model& model);
std::map<std::string, double> Utilizations(const Model& model);

struct Narrowest {
  std::string pool;  ///< Empty when nothing is offered.
  double scale = 0;  ///< All offered rates times this just fit. Infinite when nothing is offered.
};
/// Finds the pool that limits the present mix of jobs. This is Theorem 1 (docs/elasticity.md,
/// "Capacity model") for n stages, several workers and shared pools:
/// scale = min over pools of workers / Σ_apps λ_app × seconds_app,pool.
Narrowest FindNarrowest(const Model& model);

/// Returns the jobs/s that one application could have if all pools worked for it alone: the minimum
/// over its pools of workers / seconds per job. With one worker for each stage this is 1 / max T.
/// It is 0 when the application cannot be served.
double SustainableRate(const Model& model, const App& app);

/// Returns the mean wait in front of a pool, in seconds. It is M/G/c by Allen and Cunneen's
/// approximation with the demand's spread, and infinite at ρ >= 1.
double MeanWait(const Model& model, const std::string& pool);

/// Returns the seconds that a job takes when it waits nowhere: compute and transfer on the longest
/// way through its stages.
double UnloadedLatency(const App& app);

/// Returns the number of workers that `pool` needs to carry the offered work at a utilisation of at
/// most `threshold`.
double WorkersFor(const Model& model, const std::string& pool, double threshold);

/// Nobody draws conclusions from a pool's demand that rests on fewer measured jobs than this.
inline constexpr std::uint64_t kMinSamples = 5;
/// Returns the pools with offered work about which too little is known: fewer than kMinSamples jobs
/// were measured, or the measured applications make up less than nine tenths of the offered jobs.
std::vector<std::string> PoolsWithoutData(const Model& model);

struct Estimate {
  double value = 0, low = 0, high = 0;
};
/// Returns ρ with the band that the measured spread of compute times allows: ± 1.96 × variation /
/// √samples.
Estimate UtilizationBand(const Model& model, const std::string& pool);

}  // namespace onepiece::capacity
