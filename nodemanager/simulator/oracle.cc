#include "nodemanager/simulator/oracle.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::simulator {
namespace {

constexpr std::size_t kMaxStates = 4000;
constexpr std::size_t kMaxPlacements = 2000;
constexpr double kMaxIntervals = 2000;

// How many jobs have passed each stage.
using Passed = std::vector<double>;

absl::Status Refuse(const std::string& why) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_FOR_ORACLE",
                         "the oracle is for small cases: " + why);
}

absl::Status Check(const System& system, const std::vector<Arrival>& arrivals) {
  if (system.apps.size() != 1) return Refuse("the profile has more than one application");
  std::set<int> pools;
  const std::vector<Stage>& stages = system.apps[0].stages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (s > 0 && stages[s].after != std::vector<int>{static_cast<int>(s) - 1})
      return Refuse("the application is no chain of stages");
    if (!pools.insert(stages[s].pool).second) return Refuse("two stages share a pool");
    for (const Part& part : stages[s].parts)
      if (part.variation > 0) return Refuse("stage '" + stages[s].name + "' has a variation");
  }
  if (std::ranges::any_of(arrivals, [](const Arrival& job) { return job.units != 1; }))
    return Refuse("the trace's jobs differ in units");
  return absl::OkStatus();
}

// Adds every way to give devices to the pools from `pool` on that leaves too few for one more
// instance. A placement with room for one more is never better.
void Placements(const System& system, std::size_t pool, int left, std::vector<int>& chosen,
                std::vector<std::vector<int>>& all) {
  if (all.size() > kMaxPlacements) return;
  if (pool == system.pools.size()) {
    const bool room = std::ranges::any_of(system.pools, [&](const Pool& other) {
      const int count = chosen[static_cast<std::size_t>(&other - system.pools.data())];
      return other.devices <= left && (other.max_instances == 0 || count < other.max_instances);
    });
    if (!room) all.push_back(chosen);
    return;
  }
  const Pool& spec = system.pools[pool];
  for (int count = spec.min_instances; count * spec.devices <= left; ++count) {
    if (spec.max_instances > 0 && count > spec.max_instances) break;
    chosen.push_back(count);
    Placements(system, pool + 1, left - count * spec.devices, chosen, all);
    chosen.pop_back();
  }
}

bool Dominates(const Passed& a, const Passed& b) {
  for (std::size_t s = 0; s < a.size(); ++s)
    if (a[s] < b[s]) return false;
  return true;
}

// Keeps the states that no other state dominates. In descending order a later state never dominates
// an earlier one, so one pass is enough.
void KeepBest(std::vector<Passed>& states) {
  std::ranges::sort(states, std::greater<>());
  states.erase(std::unique(states.begin(), states.end()), states.end());
  std::vector<Passed> kept;
  for (Passed& state : states) {
    if (std::ranges::none_of(kept, [&](const Passed& other) { return Dominates(other, state); }))
      kept.push_back(std::move(state));
  }
  states = std::move(kept);
}

Passed Advance(const System& system, const Passed& from, const std::vector<int>& placement,
               double arrived, double seconds) {
  Passed to = from;
  double before = arrived;
  for (std::size_t s = 0; s < to.size(); ++s) {
    const Stage& stage = system.apps[0].stages[s];
    const double room = placement[stage.pool] * system.pools[stage.pool].workers * seconds /
                        StageSeconds(system, stage);
    // Rounding makes states equal that differ only by rounding errors. It rounds up, so the result
    // stays an upper bound.
    to[s] = std::min(before, std::ceil((to[s] + room) * 1e6) * 1e-6);
    before = to[s];
  }
  return to;
}

}  // namespace

absl::StatusOr<OracleResult> RunOracle(const System& system, const v1::SimulationConfig& settings,
                                       const std::vector<Arrival>& arrivals) {
  ONEPIECE_RETURN_IF_ERROR(Check(system, arrivals));
  double interval = settings.duration_s();
  for (const Pool& pool : system.pools) interval = std::min(interval, pool.load_s);
  if (interval <= 0 || settings.duration_s() / interval > kMaxIntervals)
    return Refuse(absl::StrCat("duration_s is more than ", kMaxIntervals,
                               " times the shortest load_s, ", interval, " s"));
  std::vector<std::vector<int>> placements;
  std::vector<int> chosen;
  Placements(system, 0, system.devices, chosen, placements);
  if (placements.empty()) return Refuse("no placement fits the devices");
  if (placements.size() > kMaxPlacements)
    return Refuse(absl::StrCat("more than ", kMaxPlacements, " placements; lower devices"));

  OracleResult result{.interval_s = interval};
  std::vector<Passed> states = {Passed(system.apps[0].stages.size(), 0)};
  std::size_t arrived = 0;
  for (double begin = 0; begin < settings.duration_s(); begin += interval) {
    const double end = std::min(begin + interval, settings.duration_s());
    while (arrived < arrivals.size() && arrivals[arrived].time_s < end) ++arrived;
    std::vector<Passed> next;
    for (const Passed& state : states) {
      for (const std::vector<int>& placement : placements)
        next.push_back(
            Advance(system, state, placement, static_cast<double>(arrived), end - begin));
    }
    KeepBest(next);
    states = std::move(next);
    result.states = std::max(result.states, states.size());
    if (states.size() > kMaxStates)
      return Refuse(absl::StrCat("more than ", kMaxStates, " states at ", begin,
                                 " s; lower devices or duration_s"));
  }
  for (const Passed& state : states)
    result.done = std::max(result.done, std::floor(state.back() + 1e-3));
  result.throughput = result.done / settings.duration_s();
  return result;
}

}  // namespace onepiece::simulator
