#include "nodemanager/simulator/system.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/base/status.h"

namespace onepiece::simulator {
namespace {

constexpr int kMaxApps = 16;
constexpr int kMaxStages = 16;

absl::Status Bad(const std::string& field, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PROFILE",
                         "profile: " + field + ": " + what);
}

absl::Status CheckNumber(const std::string& field, double value, double most) {
  if (std::isfinite(value) && value >= 0 && value <= most) return absl::OkStatus();
  return Bad(field, absl::StrCat("is ", value, ", must be from 0 to ", most));
}

absl::Status CheckStage(const v1::SimulatedStage& stage, const std::string& field) {
  constexpr double kMost = 1e6;
  if (stage.stage().empty()) return Bad(field + ".stage", "has no name");
  ONEPIECE_RETURN_IF_ERROR(
      CheckNumber(field + ".seconds_per_unit", stage.seconds_per_unit(), kMost));
  if (stage.seconds_per_unit() == 0) {
    return Bad(field + ".seconds_per_unit", "is 0: how long does " + stage.stage() + " take?");
  }
  ONEPIECE_RETURN_IF_ERROR(CheckNumber(field + ".units", stage.units(), 1e12));
  ONEPIECE_RETURN_IF_ERROR(CheckNumber(field + ".variation", stage.variation(), 10));
  return CheckNumber(field + ".transfer_s", stage.transfer_s(), kMost);
}

absl::Status CheckProfile(const v1::SimulationProfile& profile) {
  if (profile.apps().empty()) return Bad("apps", "none: give at least one application with stages");
  if (profile.apps_size() > kMaxApps) return Bad("apps", absl::StrCat("more than ", kMaxApps));
  for (int a = 0; a < profile.apps_size(); ++a) {
    const auto& app = profile.apps(a);
    const std::string field = absl::StrCat("apps[", a, "]");
    if (app.app_id().empty()) return Bad(field + ".app_id", "is missing");
    for (int b = 0; b < a; ++b) {
      if (profile.apps(b).app_id() == app.app_id())
        return Bad(field + ".app_id", app.app_id() + " is there twice");
    }
    ONEPIECE_RETURN_IF_ERROR(CheckNumber(field + ".share", app.share(), 1e9));
    if (app.stages().empty() || app.stages_size() > kMaxStages)
      return Bad(field + ".stages", absl::StrCat("1 to ", kMaxStages, " stages are needed"));
    for (int s = 0; s < app.stages_size(); ++s)
      ONEPIECE_RETURN_IF_ERROR(CheckStage(app.stages(s), absl::StrCat(field, ".stages[", s, "]")));
  }
  for (int p = 0; p < profile.pools_size(); ++p) {
    const auto& pool = profile.pools(p);
    const std::string field = absl::StrCat("pools[", p, "]");
    if (pool.pool().empty()) return Bad(field + ".pool", "has no name");
    ONEPIECE_RETURN_IF_ERROR(CheckNumber(field + ".load_s", pool.load_s(), 1e5));
    ONEPIECE_RETURN_IF_ERROR(
        CheckNumber(field + ".weights_bytes", static_cast<double>(pool.weights_bytes()), 1e14));
    ONEPIECE_RETURN_IF_ERROR(CheckNumber(field + ".min_instances", pool.min_instances(), 4096));
    ONEPIECE_RETURN_IF_ERROR(CheckNumber(field + ".max_instances", pool.max_instances(), 4096));
    ONEPIECE_RETURN_IF_ERROR(CheckNumber(field + ".workers", pool.workers(), 1024));
    if (pool.max_instances() > 0 && pool.max_instances() < pool.min_instances())
      return Bad(field + ".max_instances", "is below min_instances");
  }
  return absl::OkStatus();
}

// Fills in `after` and `next` of all stages of an application.
absl::Status Connect(const v1::SimulatedApp& given, const std::string& field, App& app) {
  const bool chain = std::ranges::all_of(
      given.stages(), [](const v1::SimulatedStage& stage) { return stage.after().empty(); });
  for (int s = 0; s < given.stages_size(); ++s) {
    // If no stage names a predecessor, the stages follow each other.
    if (chain && s > 0) app.stages[s].after.push_back(s - 1);
    for (const std::string& name : given.stages(s).after()) {
      const auto before = std::find_if(app.stages.begin(), app.stages.begin() + s,
                                       [&](const Stage& other) { return other.name == name; });
      if (before == app.stages.begin() + s)
        return Bad(absl::StrCat(field, ".stages[", s, "].after"),
                   "'" + name + "' is no earlier stage of " + app.id);
      app.stages[s].after.push_back(static_cast<int>(before - app.stages.begin()));
    }
    for (const int before : app.stages[s].after) app.stages[before].next.push_back(s);
  }
  return absl::OkStatus();
}

Part PartOf(const v1::SimulatedStage& stage, int index) {
  return {.index = index,
          .seconds = stage.seconds_per_unit() * (stage.units() > 0 ? stage.units() : 1),
          .variation = stage.variation(),
          .parallel = stage.parallel()};
}

Pool PoolFrom(const v1::SimulationProfile& profile, const v1::SimulatedStage& stage) {
  Pool pool;
  pool.id = stage.pool().empty() ? stage.stage() : stage.pool();
  pool.stage = stage.stage();
  for (const v1::SimulatedPool& given : profile.pools()) {
    if (given.pool() != pool.id) continue;
    pool.workers = std::max(1, given.workers());
    pool.min_instances = std::max(1, given.min_instances());
    pool.max_instances = given.max_instances();
    pool.load_s = given.load_s();
    pool.weights_bytes = given.weights_bytes();
  }
  return pool;
}

void ShareOut(const v1::SimulationProfile& profile, System& system) {
  double sum = 0;
  for (int a = 0; a < profile.apps_size(); ++a) {
    system.apps[a].share = profile.apps(a).share() > 0 ? profile.apps(a).share() : 1;
    sum += system.apps[a].share;
  }
  for (App& app : system.apps) app.share /= sum;
}

// Makes the system of one pool. Its instances load the weights of all pools, one after the other.
System Fuse(const v1::SimulationProfile& profile, const v1::SimulationConfig& settings,
            const System& apart) {
  System fused{.devices = settings.devices()};
  Pool& all = fused.pools.emplace_back();
  all.id = all.stage = "monolithic";
  all.devices = settings.degree();
  for (const Pool& pool : apart.pools) {
    all.load_s += pool.load_s;
    all.weights_bytes += pool.weights_bytes;
  }
  for (const v1::SimulatedApp& given : profile.apps()) {
    Stage stage{.name = all.stage};
    for (int s = 0; s < given.stages_size(); ++s) stage.parts.push_back(PartOf(given.stages(s), s));
    stage.transfer_s = given.stages(given.stages_size() - 1).transfer_s();
    fused.apps.push_back({.id = given.app_id(), .stages = {std::move(stage)}});
  }
  ShareOut(profile, fused);
  return fused;
}

absl::StatusOr<System> Split(const v1::SimulationProfile& profile,
                             const v1::SimulationConfig& settings) {
  ONEPIECE_RETURN_IF_ERROR(CheckProfile(profile));
  System system{.devices = settings.devices()};
  for (int a = 0; a < profile.apps_size(); ++a) {
    const v1::SimulatedApp& given = profile.apps(a);
    App app{.id = given.app_id()};
    for (int s = 0; s < given.stages_size(); ++s) {
      const v1::SimulatedStage& from = given.stages(s);
      const Pool wanted = PoolFrom(profile, from);
      auto pool = std::ranges::find(system.pools, wanted.id, &Pool::id);
      if (pool == system.pools.end()) pool = system.pools.insert(pool, wanted);
      if (from.parallel()) pool->devices = settings.degree();
      app.stages.push_back({.name = from.stage(),
                            .pool = static_cast<int>(pool - system.pools.begin()),
                            .units = from.units() > 0 ? from.units() : 1,
                            .transfer_s = from.transfer_s(),
                            .parts = {PartOf(from, s)}});
    }
    ONEPIECE_RETURN_IF_ERROR(Connect(given, absl::StrCat("apps[", a, "]"), app));
    system.apps.push_back(std::move(app));
  }
  ShareOut(profile, system);
  return system;
}

// Sets the SLO of each application to a multiple of what a job takes unloaded in the fused system.
// So both systems promise the same.
void Promise(const System& fused, double slo_factor, System& system) {
  for (std::size_t a = 0; a < system.apps.size(); ++a)
    system.apps[a].slo_s = slo_factor * UnloadedLatency(fused, fused.apps[a]);
}

// The worker seconds that an average job of the mix takes from each pool.
std::vector<double> WorkerSeconds(const System& system) {
  std::vector<double> seconds(system.pools.size());
  for (const App& app : system.apps)
    for (const Stage& stage : app.stages)
      seconds[stage.pool] += app.share * StageSeconds(system, stage);
  return seconds;
}

struct Setting {
  const char* name;
  double value, least, most;
};

absl::Status CheckSettings(const v1::SimulationConfig& s) {
  const Setting all[] = {
      {"duration_s", s.duration_s(), 1, 366 * 86400.0},
      {"rate", s.rate(), 0, 1e6},
      {"load", s.load(), 1e-6, 100},
      {"devices", static_cast<double>(s.devices()), 1, 4096},
      {"degree", static_cast<double>(s.degree()), 1, static_cast<double>(s.devices())},
      {"burst_ratio", s.burst_ratio(), 1, 1000},
      {"burst_share", s.burst_share(), 1e-6, 0.999},
      {"burst_s", s.burst_s(), 1e-3, 1e7},
      {"amplitude", s.amplitude(), 0, 1},
      {"period_s", s.period_s(), 1, 1e9},
      {"slo_factor", s.slo_factor(), 1, 1e6},
      {"deadline_s", s.deadline_s(), 0, 1e9},
      {"retry_s", s.retry_s(), 0, 1e9},
      {"proxies", static_cast<double>(s.proxies()), 1, 64},
      {"workflow_sets", static_cast<double>(s.workflow_sets()), 1, 64},
      {"mtbf_s", s.mtbf_s(), 0, 1e12},
      {"repair_s", s.repair_s(), 1e-3, 1e9},
      {"load_failures", s.load_failures(), 0, 1},
      {"parked_bytes", static_cast<double>(s.parked_bytes()), 0, 1e14},
  };
  for (const Setting& one : all) {
    if (std::isfinite(one.value) && one.value >= one.least && one.value <= one.most) continue;
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_SETTING",
        absl::StrCat(one.name, " is ", one.value, ", must be from ", one.least, " to ", one.most));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::SimulationConfig> CompleteSettings(v1::SimulationConfig s) {
  if (s.duration_s() == 0) s.set_duration_s(3600);
  if (s.load() == 0) s.set_load(0.7);
  if (s.seed() == 0) s.set_seed(1);
  if (s.devices() == 0) s.set_devices(64);
  if (s.degree() == 0) s.set_degree(1);
  if (s.burst_ratio() == 0) s.set_burst_ratio(5);
  if (s.burst_share() == 0) s.set_burst_share(0.2);
  if (s.burst_s() == 0) s.set_burst_s(300);
  if (s.amplitude() == 0) s.set_amplitude(0.8);
  if (s.period_s() == 0) s.set_period_s(86400);
  if (s.slo_factor() == 0) s.set_slo_factor(2);
  if (!s.has_admission()) s.set_admission(true);
  if (s.proxies() == 0) s.set_proxies(1);
  if (s.workflow_sets() == 0) s.set_workflow_sets(1);
  if (s.repair_s() == 0) s.set_repair_s(60);
  ONEPIECE_RETURN_IF_ERROR(CheckSettings(s));
  return s;
}

absl::StatusOr<System> MakeDisaggregated(const v1::SimulationProfile& profile,
                                         const v1::SimulationConfig& settings) {
  ONEPIECE_ASSIGN_OR_RETURN(System system, Split(profile, settings));
  Promise(Fuse(profile, settings, system), settings.slo_factor(), system);
  return system;
}

absl::StatusOr<System> MakeMonolithic(const v1::SimulationProfile& profile,
                                      const v1::SimulationConfig& settings) {
  ONEPIECE_ASSIGN_OR_RETURN(const System apart, Split(profile, settings));
  System system = Fuse(profile, settings, apart);
  Promise(system, settings.slo_factor(), system);
  return system;
}

double StageSeconds(const System& system, const Stage& stage) {
  double seconds = 0;
  for (const Part& part : stage.parts)
    seconds += part.seconds / (part.parallel ? system.pools[stage.pool].devices : 1);
  return seconds;
}

double UnloadedLatency(const System& system, const App& app) {
  std::vector<double> ready(app.stages.size());
  double latest = 0;
  for (std::size_t s = 0; s < app.stages.size(); ++s) {
    const Stage& stage = app.stages[s];
    double start = 0;
    for (const int before : stage.after) start = std::max(start, ready[before]);
    ready[s] = start + StageSeconds(system, stage) + stage.transfer_s;
    latest = std::max(latest, ready[s]);
  }
  return latest;
}

double IdealDeviceSeconds(const System& system) {
  double seconds = 0;
  for (const App& app : system.apps)
    for (const Stage& stage : app.stages)
      for (const Part& part : stage.parts) seconds += app.share * part.seconds;
  return seconds;
}

double BoundDeviceSeconds(const System& system) {
  double seconds = 0;
  const std::vector<double> work = WorkerSeconds(system);
  for (std::size_t p = 0; p < work.size(); ++p)
    seconds += work[p] * system.pools[p].devices / system.pools[p].workers;
  return seconds;
}

double RateOf(const System& system, const std::vector<int>& instances) {
  double rate = std::numeric_limits<double>::infinity();
  const std::vector<double> work = WorkerSeconds(system);
  for (std::size_t p = 0; p < work.size(); ++p) {
    if (work[p] > 0) rate = std::min(rate, instances[p] * system.pools[p].workers / work[p]);
  }
  return rate;
}

int DevicesOf(const System& system, const std::vector<int>& instances) {
  int devices = 0;
  for (std::size_t p = 0; p < instances.size(); ++p)
    devices += instances[p] * system.pools[p].devices;
  return devices;
}

absl::StatusOr<std::vector<int>> BestPlacement(const System& system, int devices) {
  std::vector<int> best;
  for (const Pool& pool : system.pools) best.push_back(pool.min_instances);
  if (DevicesOf(system, best) > devices) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "TOO_FEW_DEVICES",
        absl::StrCat("the smallest placement, ", PlacementText(system, best), ", needs ",
                     DevicesOf(system, best), " devices; there are ", devices));
  }
  // Each step gives the narrowest pool one more instance, because no higher rate is possible
  // without it. `best` follows only when the rate has grown, so it has no instance that its rate
  // does not need.
  const std::vector<double> work = WorkerSeconds(system);
  std::vector<int> wider = best;
  for (;;) {
    std::size_t narrowest = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p < work.size(); ++p) {
      const double rate = wider[p] * system.pools[p].workers / std::max(work[p], 1e-300);
      if (rate >= least) continue;
      least = rate;
      narrowest = p;
    }
    if (RateOf(system, wider) > RateOf(system, best)) best = wider;
    const Pool& pool = system.pools[narrowest];
    if (pool.max_instances > 0 && wider[narrowest] >= pool.max_instances) return best;
    ++wider[narrowest];
    if (DevicesOf(system, wider) > devices) return best;
  }
}

absl::StatusOr<std::vector<int>> StartPlacement(const System& system,
                                                const std::string& placement) {
  if (placement.empty()) return BestPlacement(system, system.devices);
  const auto bad = [&](const std::string& what) {
    std::string known;
    for (const Pool& pool : system.pools)
      absl::StrAppend(&known, known.empty() ? "" : ", ", pool.id);
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, "BAD_SETTING",
        "placement '" + placement + "': " + what + " (POOL=INSTANCES,…; pools: " + known + ")");
  };
  std::vector<int> instances(system.pools.size(), 0);
  for (const auto item : absl::StrSplit(placement, ',')) {
    const std::vector<std::string> sides = absl::StrSplit(item, '=');
    int count = 0;
    if (sides.size() != 2 || !absl::SimpleAtoi(sides[1], &count) || count < 0 || count > 4096)
      return bad("'" + std::string(item) + "' is not POOL=INSTANCES");
    const auto pool = std::ranges::find(system.pools, sides[0], &Pool::id);
    if (pool == system.pools.end()) return bad("there is no pool '" + sides[0] + "'");
    instances[static_cast<std::size_t>(pool - system.pools.begin())] = count;
  }
  for (std::size_t p = 0; p < instances.size(); ++p) {
    if (instances[p] == 0) return bad("pool '" + system.pools[p].id + "' has no instance");
  }
  if (DevicesOf(system, instances) > system.devices)
    return bad(absl::StrCat("needs ", DevicesOf(system, instances), " devices; there are ",
                            system.devices));
  return instances;
}

std::string PlacementText(const System& system, const std::vector<int>& instances) {
  std::string text;
  for (std::size_t p = 0; p < instances.size(); ++p)
    absl::StrAppend(&text, p == 0 ? "" : ",", system.pools[p].id, "=", instances[p]);
  return text;
}

}  // namespace onepiece::simulator
