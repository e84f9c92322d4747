#include "nodemanager/policy/utilization_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A donor stays this far below the threshold, or by this share less busy than the pool that gets
// its instance. Then a slightly different measurement does not bring the instance back.
constexpr double kHysteresis = 0.05;
// A pool that gives an instance to the idle pool stays this far below the threshold.
constexpr double kScaleInMargin = 0.15;
// A pool that has changed takes idle instances again after this share of a window. It is short
// because no pool loses them.
constexpr double kSettles = 0.1;
constexpr std::size_t kMaxDetail = 2000;

struct Instance {
  const InstanceView* view;
  bool used = false;  // A move of this decision takes it, alone or with others.
};

double Share(double load, double workers) {
  if (load <= 0) return 0;
  return workers > 0 ? load / workers : kInfinity;
}

bool MayServe(const InstanceView& instance, const PoolView& pool) {
  return (instance.pinned_stage.empty() || instance.pinned_stage == pool.stage) &&
         std::ranges::find(instance.unfit_pools, pool.id) == instance.unfit_pools.end();
}

// A pool as the moves of this decision leave it.
struct PoolState {
  const PoolView* view = nullptr;
  int instances = 0;  // Instances that serve.
  int useless = 0;    // Instances that are there and serve nobody.
  double workers = 0;
  double load = 0;       // How many workers the offered work keeps busy.
  double most_load = 0;  // The same, if the instances that were not measured are busy.
  double drain_s = 0;    // How long an instance goes on computing when it is told to stop.
  int unmeasured = 0;    // Instances that were not measured for long enough.
  bool unknown = false;  // Too few jobs were measured.
  // turned_away: some application of the pool meets a pool that is over 100 %, so its jobs are
  // turned away. served: some application meets none.
  bool turned_away = false, served = false;
  bool asked_for = false;  // Somebody in its set wants jobs that need it.
  bool flapping = false;
  // How many instances it may exchange in a cooldown, and how many may be on their way at a time.
  int share = 1;
  int cooling = 0, settling = 0;  // Its changes in the last cooldown, and in the last kSettles.
  int under_way = 0;              // Moves that take an instance from it, or bring it an idle one.
  bool gave = false, received = false;  // By a move of this decision.
  bool given_up = false;                // This decision can do no more for it.

  [[nodiscard]] double Busy() const { return Share(load, workers); }
  // How busy it is at most when it has given so many workers.
  [[nodiscard]] double BusyWithout(double given) const { return Share(most_load, workers - given); }
  // If the limits contradict each other, the maximum counts here: no move ever exceeds it.
  [[nodiscard]] bool AtMaximum() const {
    return view->max_instances > 0 && instances + useless >= view->max_instances;
  }
  [[nodiscard]] bool BelowMinimum() const {
    return instances < view->min_instances && !AtMaximum();
  }
  // The utilisation of its instances says enough about a pool with few jobs, such as one with long
  // jobs.
  [[nodiscard]] bool Known() const { return instances == 0 ? !unknown : unmeasured < instances; }
  // In a large pool there is always somebody who was not measured.
  [[nodiscard]] bool IsMeasured() const { return !unknown && unmeasured < share; }
  [[nodiscard]] bool IsCooling() const { return cooling >= share; }
  [[nodiscard]] bool IsSettling() const { return settling >= share; }
  [[nodiscard]] bool IsBroken() const {
    return view->unloadable >= kEnoughFailures || view->failed_plans >= kEnoughFailures;
  }
};

// How many instances of a place each host and each zone has: they may fail together.
struct Neighbours {
  std::map<std::string, int> hosts, zones;
  void Change(const InstanceView& instance, int change) {
    if (!instance.host.empty()) hosts[instance.host] += change;
    if (!instance.zone.empty()) zones[instance.zone] += change;
  }
  [[nodiscard]] std::pair<int, int> Of(const InstanceView& instance) const {
    const auto host = hosts.find(instance.host), zone = zones.find(instance.zone);
    return {host == hosts.end() ? 0 : host->second, zone == zones.end() ? 0 : zone->second};
  }
};

std::string Percent(double busy) {
  return std::isinf(busy) ? "100 % without instances" : absl::StrFormat("%.0f %%", 100 * busy);
}

// One decision. It reads the view into pools_ and instances_, and then makes one move after the
// other, each on the state that the moves before it leave.
class Decider {
 public:
  Decider(const PolicyView& view, const v1::ElasticityConfig& config);
  PolicyDecision Run();

 private:
  void ReadInstances();
  void ReadLoads();
  void ReadLoadsOf(const SetView& set);
  static void ReadApp(const capacity::App& app, const std::map<std::string, double>& busy,
                      const std::map<std::string_view, PoolState*>& pools);
  void ReadPast();

  PoolState* Neediest();
  [[nodiscard]] bool IsAnyNearlyBusy() const;
  bool Grow(PoolState& pool);
  bool TakeIdle(PoolState& pool, bool same_set);
  bool TakeFromDonor(PoolState& pool, bool same_set);
  bool ScaleIn();

  int InstancesToGive(const PoolState& from, const PoolState& to);
  [[nodiscard]] bool MayGive(const PoolState& from) const;
  // How busy `from` is after it has given `to` what that needs, or nullopt when it cannot or must
  // not give.
  [[nodiscard]] std::optional<double> BusyAfterGiving(const PoolState& from, const PoolState& to);
  [[nodiscard]] bool PaysOff(const PoolState& from, const PoolState& to, double moved_workers,
                             double busy_after) const;
  using Place = std::pair<std::string, std::string>;  // Set and pool id. An empty id means idle.
  std::vector<Instance*> Movable(const PoolState& from, const PoolState* to);
  std::vector<Instance*> Pick(const Place& from, const PoolState* to);
  void Move(Instance& instance, PoolState* from, PoolState* to, std::string reason);
  [[nodiscard]] bool HasTotal() const { return config_.max_moves() > 0; }
  // How many moves may still begin. Without a total, each pool has a budget of its own.
  [[nodiscard]] int Budget() const {
    if (!HasTotal()) return std::numeric_limits<int>::max();
    return config_.max_moves() - view_.moves_under_way - static_cast<int>(decision_.moves.size());
  }
  // How many of them may take an instance from the pool, or bring it an idle one.
  [[nodiscard]] int BudgetOf(const PoolState& pool) const {
    return HasTotal() ? Budget() : pool.share - pool.under_way;
  }
  void ReadChanges(PoolState& pool) const;
  [[nodiscard]] std::string Name(const PoolState& pool) const;
  void Note(const std::string& text);

  const PolicyView& view_;
  const v1::ElasticityConfig& config_;
  std::vector<Instance> instances_;
  std::map<Place, PoolState> pools_;
  std::map<Place, std::vector<std::size_t>> members_;  // Of the view: indices in instances_.
  std::map<Place, Neighbours> neighbours_;             // After the moves of this decision.
  std::set<std::string> sets_;                         // Sets that have instances.
  PolicyDecision decision_;
};

Decider::Decider(const PolicyView& view, const v1::ElasticityConfig& config)
    : view_(view), config_(config) {
  for (const PoolView& pool : view.pools) {
    pools_.try_emplace({pool.workflow_set, pool.id}, PoolState{.view = &pool});
  }
  ReadInstances();
  for (auto& [key, pool] : pools_) ReadChanges(pool);
  ReadLoads();
  ReadPast();
}

void Decider::ReadChanges(PoolState& pool) const {
  const auto changes_within = [&](double seconds) {
    return static_cast<int>(std::ranges::count_if(pool.view->changes, [&](base::MonotonicTime at) {
      return view_.now - at < base::FromSeconds(seconds);
    }));
  };
  pool.share = MoveShare(config_, pool.instances + pool.view->leaving);
  pool.cooling = changes_within(config_.cooldown_s());
  pool.settling = changes_within(std::min(config_.cooldown_s(), kSettles * config_.window_s()));
  pool.under_way = pool.view->leaving + pool.view->arriving;
}

void Decider::ReadInstances() {
  for (const InstanceView& instance : view_.instances) {
    const Place at = {instance.workflow_set, instance.pool};
    members_[at].push_back(instances_.size());
    neighbours_[at].Change(instance, 1);
    instances_.push_back({.view = &instance});
    sets_.insert(instance.workflow_set);
    const auto place = pools_.find(at);
    if (place == pools_.end()) continue;
    PoolState& pool = place->second;
    if (instance.workers <= 0) {
      ++pool.useless;
      continue;
    }
    ++pool.instances;
    pool.workers += instance.workers;
    if (instance.utilization.has_value() && std::isfinite(*instance.utilization)) {
      pool.load += std::clamp(*instance.utilization, 0.0, 1.0) * instance.workers;
      pool.most_load += std::clamp(*instance.utilization, 0.0, 1.0) * instance.workers;
    } else {
      ++pool.unmeasured;
      pool.most_load += instance.workers;
    }
  }
}

void Decider::ReadLoads() {
  for (const SetView& set : view_.sets) ReadLoadsOf(set);
}

void Decider::ReadLoadsOf(const SetView& set) {
  capacity::Model model = set.model;
  std::map<std::string_view, PoolState*> pools;
  for (capacity::Pool& pool : model.pools) {
    const auto place = pools_.find({set.workflow_set, pool.id});
    pool.workers = place == pools_.end() ? 0 : place->second.workers;
    if (place != pools_.end()) pools[place->second.view->id] = &place->second;
  }
  for (const std::string& id : capacity::PoolsWithoutData(model)) {
    if (const auto place = pools.find(id); place != pools.end()) place->second->unknown = true;
  }
  std::map<std::string, double> busy = capacity::Utilizations(model);
  // A pool at its maximum lets through only what it can serve, and no more reaches the other pools.
  // Each round cuts the demand of all applications of the busiest such pool, so that the others are
  // not grown for work that never reaches them.
  for (std::size_t round = 0; round < model.pools.size(); ++round) {
    const PoolState* worst = nullptr;
    double busiest = 1 + 1e-9;
    for (const auto& [id, pool] : pools) {
      if (!pool->AtMaximum() || busy[pool->view->id] <= busiest) continue;
      worst = pool;
      busiest = busy[pool->view->id];
    }
    if (worst == nullptr) break;
    for (capacity::App& app : model.apps) {
      if (std::ranges::any_of(app.stages, [&](const capacity::StageDemand& demand) {
            return demand.pool == worst->view->id;
          }))
        app.arrivals_per_s /= busiest;
    }
    busy = capacity::Utilizations(model);
  }
  const std::map<std::string, double> loads = capacity::Loads(model);
  for (const auto& [id, pool] : pools) {
    const auto load = loads.find(pool->view->id);
    // What is offered can be more than what the instances are busy with, when jobs are rejected.
    if (!pool->unknown && load != loads.end()) {
      pool->load = std::max(pool->load, load->second);
      pool->most_load = std::max(pool->most_load, load->second);
    }
    pool->asked_for = pool->load > 0;
  }
  for (const capacity::App& app : model.apps) ReadApp(app, busy, pools);
}

void Decider::ReadApp(const capacity::App& app, const std::map<std::string, double>& busy,
                      const std::map<std::string_view, PoolState*>& pools) {
  if (!(app.arrivals_per_s > 0)) return;
  const bool is_limited = std::ranges::any_of(app.stages, [&](const capacity::StageDemand& demand) {
    const auto known = busy.find(demand.pool);
    return known != busy.end() && known->second > 1;
  });
  for (const capacity::StageDemand& demand : app.stages) {
    const auto place = pools.find(demand.pool);
    if (place == pools.end()) continue;
    PoolState& pool = *place->second;
    pool.asked_for = true;
    if (demand.samples == 0) continue;
    (is_limited ? pool.turned_away : pool.served) = true;
    if (std::isfinite(demand.seconds_per_job))
      pool.drain_s = std::max(pool.drain_s, demand.seconds_per_job);
  }
}

void Decider::ReadPast() {
  std::map<std::pair<Place, Place>, int> seen;  // Moves of which none the other way came since.
  std::map<Place, std::map<Place, int>> returned;
  for (const PastMove& move : view_.past) {
    if (view_.now - move.at > base::FromSeconds(kFlappingWindows * config_.window_s())) continue;
    // The idle pools of all sets count as one place.
    const Place from = {move.from_pool.empty() ? "" : move.from_set, move.from_pool};
    const Place to = {move.to_pool.empty() ? "" : move.to_set, move.to_pool};
    if (from == to) continue;
    int& other_way = seen[{to, from}];
    if (other_way == 0) {
      ++seen[{from, to}];
      continue;
    }
    --other_way;
    ++returned[from][to];
    ++returned[to][from];
  }
  for (const auto& [place, others] : returned) {
    const auto pool = pools_.find(place);
    if (pool == pools_.end()) continue;
    const int most = std::ranges::max(others | std::views::values);
    if (most < pool->second.share) continue;
    pool->second.flapping = true;
    Note(absl::StrCat("flapping: ", Name(pool->second), " gave and took ",
                      most == 1 ? "an instance" : absl::StrCat(most, " instances"),
                      " within the last ", kFlappingWindows,
                      " windows; it gives none and takes idle ones only"));
  }
}

PolicyDecision Decider::Run() {
  if (Budget() <= 0) {
    Note(absl::StrCat(view_.moves_under_way, " moves are under way, elasticity.max_moves is ",
                      config_.max_moves()));
    return std::move(decision_);
  }
  for (const auto& [key, pool] : pools_) {
    if (!pool.Known()) Note(Name(pool) + ": not measured for long enough");
    if (pool.view->max_instances > 0 && pool.view->min_instances > pool.view->max_instances)
      Note(absl::StrCat(Name(pool), ": its minimum of ", pool.view->min_instances,
                        " is above its maximum of ", pool.view->max_instances));
  }
  bool needed = false;
  // Each round spends budget or gives up a pool, so the loop ends.
  while (Budget() > 0) {
    PoolState* pool = Neediest();
    if (pool == nullptr) break;
    needed = true;
    // A pool that failed before is tried with one instance.
    if (!Grow(*pool) || pool->view->failed_plans > 0) pool->given_up = true;
  }
  if (!IsAnyNearlyBusy()) {
    while (Budget() > 0 && ScaleIn()) {
    }
  }
  if (!needed && decision_.moves.empty()) Note("no pool is above " + Percent(config_.threshold()));
  return std::move(decision_);
}

// Pools below their minimum come first, then the busiest one.
PoolState* Decider::Neediest() {
  PoolState* neediest = nullptr;
  for (auto& [key, pool] : pools_) {
    if (pool.given_up || pool.gave) continue;
    if (!pool.BelowMinimum() && !(pool.Known() && pool.Busy() > config_.threshold())) continue;
    if (neediest == nullptr || std::pair(pool.BelowMinimum(), pool.Busy()) >
                                   std::pair(neediest->BelowMinimum(), neediest->Busy()))
      neediest = &pool;
  }
  return neediest;
}

// True when a pool will soon want an instance. An instance that became idle now would then have to
// move twice. A pool at its maximum does not count, because it takes none. A pool of large
// instances does not count either, because it needs several idle ones.
bool Decider::IsAnyNearlyBusy() const {
  return std::ranges::any_of(pools_, [&](const auto& entry) {
    const PoolState& pool = entry.second;
    if (pool.AtMaximum() || pool.view->resource > 1) return false;
    return pool.received || pool.BelowMinimum() ||
           (pool.Known() && pool.Busy() > config_.threshold() - kScaleInMargin);
  });
}

bool Decider::Grow(PoolState& pool) {
  const std::string what =
      Name(pool) + (pool.BelowMinimum() ? absl::StrCat(" has ", pool.instances, " of at least ",
                                                       pool.view->min_instances, " instances")
                                        : " is at " + Percent(pool.Busy()));
  if (pool.AtMaximum()) {
    Note(absl::StrCat(what, ": it has its maximum of ", pool.view->max_instances));
    return false;
  }
  if (pool.IsBroken()) {
    Note(what + ": its model did not load where it was tried");
    return false;
  }
  const bool failed = pool.view->failed_plans > 0;
  const char* waits = ": it has changed less than a cooldown ago";
  if (failed ? pool.cooling > 0 : pool.IsSettling() && !pool.BelowMinimum()) {
    Note(what + waits);
    return false;
  }
  if (BudgetOf(pool) <= 0 && !pool.BelowMinimum()) {
    Note(absl::StrCat(what, ": ", pool.under_way, " of its instances are on their way"));
    return false;
  }
  if (TakeIdle(pool, /*same_set=*/true) || TakeIdle(pool, /*same_set=*/false)) return true;
  if (!pool.BelowMinimum() && pool.IsCooling()) {
    Note(what + waits);
    return false;
  }
  // A pool that flaps takes idle instances only, because no other pool loses them.
  if (pool.flapping && !pool.BelowMinimum()) return false;
  if (TakeFromDonor(pool, /*same_set=*/true) || TakeFromDonor(pool, /*same_set=*/false))
    return true;
  Note(what + ": no instance is idle, and no pool can spare one");
  return false;
}

// The first of the `needed` idle devices moves. The others are marked as used and go with it.
bool Decider::TakeIdle(PoolState& pool, bool same_set) {
  if (!same_set && !pool.asked_for) return false;
  const auto needed = static_cast<std::size_t>(std::max(1, pool.view->resource));
  for (const std::string& set : sets_) {
    if ((set == pool.view->workflow_set) != same_set) continue;
    const std::vector<Instance*> idle = Pick({set, ""}, &pool);
    if (idle.size() < needed) continue;
    const std::string busy = Percent(pool.Busy());
    for (std::size_t i = 1; i < needed; ++i) idle[i]->used = true;
    Move(*idle[0], nullptr, &pool,
         absl::StrFormat("%s at %s over %.0f s; was idle", Name(pool), busy, config_.window_s()));
    return true;
  }
  return false;
}

bool Decider::TakeFromDonor(PoolState& pool, bool same_set) {
  PoolState* donor = nullptr;
  double least = kInfinity;
  for (auto& [key, other] : pools_) {
    if (&other == &pool || (key.first == pool.view->workflow_set) != same_set) continue;
    const std::optional<double> after = BusyAfterGiving(other, pool);
    if (!after.has_value() || (donor != nullptr && *after >= least)) continue;
    donor = &other;
    least = *after;
  }
  if (donor == nullptr) return false;
  const int count = InstancesToGive(*donor, pool);
  const std::string reason =
      absl::StrFormat("%s at %s over %.0f s; %s keeps %s", Name(pool), Percent(pool.Busy()),
                      config_.window_s(), Name(*donor), Percent(least));
  const std::vector<Instance*> given = Movable(*donor, &pool);
  const bool directly = std::max(1, donor->view->resource) >= std::max(1, pool.view->resource);
  for (int i = 0; i < count; ++i)
    Move(*given[static_cast<std::size_t>(i)], donor, directly ? &pool : nullptr, reason);
  // The instances become idle first. Until then this decision can do no more for the pool.
  if (!directly) pool.given_up = true;
  return true;
}

int Decider::InstancesToGive(const PoolState& from, const PoolState& to) {
  const int given = std::max(1, from.view->resource), needed = std::max(1, to.view->resource);
  if (given >= needed) return 1;
  const auto idle = static_cast<int>(Pick({from.view->workflow_set, ""}, &to).size());
  return (std::max(1, needed - idle) + given - 1) / given;
}

bool Decider::MayGive(const PoolState& from) const {
  return from.IsMeasured() && !from.flapping && !from.IsCooling() && !from.received &&
         BudgetOf(from) > 0;
}

std::optional<double> Decider::BusyAfterGiving(const PoolState& from, const PoolState& to) {
  const int count = InstancesToGive(from, to);
  if (!MayGive(from) || count > BudgetOf(from) || from.instances - count < from.view->min_instances)
    return std::nullopt;
  const std::vector<Instance*> given = Movable(from, &to);
  if (given.size() < static_cast<std::size_t>(count)) return std::nullopt;
  double workers = 0;
  for (int i = 0; i < count; ++i) workers += given[static_cast<std::size_t>(i)]->view->workers;
  const double after = from.BusyWithout(workers);
  // If all jobs of the donor meet a pool that turns jobs away, the donor only has to stay less busy
  // than the pool that gets its instance. This rule finds the distribution that serves the most
  // jobs.
  double limit = config_.threshold() - kHysteresis;
  if (to.Busy() > 1 && from.turned_away && !from.served)
    limit = std::max(limit, to.Busy() * (1 - kHysteresis));
  if (std::isinf(after) || after > limit) return std::nullopt;
  // A move for a minimum need not pay within a set. From another set it must pay, so a set with
  // little demand gets none of another's instances for its minimum.
  const bool owes = to.BelowMinimum() && from.view->workflow_set == to.view->workflow_set;
  if (!owes && !PaysOff(from, to, workers, after)) return std::nullopt;
  return after;
}

// True when the worker seconds that the move gains in a window are at least those that are lost
// while the instance drains and loads. A move that gains nothing never pays, even when it seems to
// cost nothing because nobody has measured how long a load takes.
bool Decider::PaysOff(const PoolState& from, const PoolState& to, double moved_workers,
                      double busy_after) const {
  double gain = std::min(moved_workers, to.load / config_.threshold() - to.workers);
  if (busy_after > config_.threshold()) gain *= 1 - busy_after / to.Busy();
  const double load_s = std::isfinite(to.view->load_s) ? std::max(0.0, to.view->load_s) : 0;
  return gain > 0 && gain * config_.window_s() >= moved_workers * (load_s + from.drain_s);
}

bool Decider::ScaleIn() {
  PoolState* least = nullptr;
  std::vector<Instance*> given;
  for (auto& [key, pool] : pools_) {
    if (!MayGive(pool) || pool.instances <= pool.view->min_instances ||
        pool.Busy() >= config_.low_threshold() ||
        (least != nullptr && pool.Busy() >= least->Busy()))
      continue;
    const std::vector<Instance*> movable = Movable(pool, nullptr);
    if (movable.empty() ||
        pool.BusyWithout(movable[0]->view->workers) > config_.threshold() - kScaleInMargin)
      continue;
    least = &pool;
    given = movable;
  }
  if (least == nullptr) return false;
  const double after = least->BusyWithout(given[0]->view->workers);
  Move(*given[0], least, nullptr,
       absl::StrFormat("%s at %s over %.0f s; keeps %s", Name(*least), Percent(least->Busy()),
                       config_.window_s(), Percent(after)));
  return true;
}

// The movable instances of a place that may serve `to`, or all of them when they become idle. Those
// come first that spread the pools best over hosts and zones: `to` has fewest near them, and the
// place that loses them has most. Of equal ones those come first that have been there for longest.
std::vector<Instance*> Decider::Pick(const Place& from, const PoolState* to) {
  struct Choice {
    std::pair<int, int> there, here;
    base::MonotonicTime since;
    Instance* instance;
  };
  const auto members = members_.find(from);
  if (members == members_.end()) return {};
  const auto near = [&](const Place& place, const InstanceView& view) {
    const auto known = neighbours_.find(place);
    return place.second.empty() || known == neighbours_.end() ? std::pair(0, 0)
                                                              : known->second.Of(view);
  };
  const Place place = to == nullptr ? Place() : Place(to->view->workflow_set, to->view->id);
  std::vector<Choice> choices;
  for (const std::size_t index : members->second) {
    Instance& instance = instances_[index];
    const InstanceView& view = *instance.view;
    if (instance.used || !view.movable || view.workers <= 0) continue;
    if (to != nullptr && !MayServe(view, *to->view)) continue;
    choices.push_back({near(place, view), near(from, view),
                       view.since.value_or(base::MonotonicTime::min()), &instance});
  }
  std::ranges::stable_sort(choices, [](const Choice& a, const Choice& b) {
    return std::tie(a.there, b.here, a.since) < std::tie(b.there, a.here, b.since);
  });
  std::vector<Instance*> found;
  for (const Choice& choice : choices) found.push_back(choice.instance);
  return found;
}

// An instance that serves rests for two cooldowns before it moves again.
std::vector<Instance*> Decider::Movable(const PoolState& from, const PoolState* to) {
  std::vector<Instance*> found = Pick({from.view->workflow_set, from.view->id}, to);
  std::erase_if(found, [&](const Instance* instance) {
    return instance->view->since.has_value() &&
           view_.now - *instance->view->since < base::FromSeconds(2 * config_.cooldown_s());
  });
  return found;
}

void Decider::Move(Instance& instance, PoolState* from, PoolState* to, std::string reason) {
  const InstanceView& view = *instance.view;
  instance.used = true;
  neighbours_[{view.workflow_set, view.pool}].Change(view, -1);
  if (to != nullptr) neighbours_[{to->view->workflow_set, to->view->id}].Change(view, 1);
  decision_.moves.push_back({.node_id = view.node_id,
                             .to_set = to == nullptr ? view.workflow_set : to->view->workflow_set,
                             .to_pool = to == nullptr ? "" : to->view->id,
                             .reason = std::move(reason)});
  // A given total replaces the budgets of the pools, so it also bounds what one decision changes.
  for (PoolState* pool : {from, to}) {
    if (pool == nullptr || HasTotal()) continue;
    ++pool->cooling;
    ++pool->settling;
    if (pool == from || from == nullptr) ++pool->under_way;
  }
  if (from != nullptr) {
    --from->instances;
    from->workers -= view.workers;
    from->gave = true;
  }
  if (to != nullptr) {
    ++to->instances;
    to->workers += view.workers;
    to->received = true;
  }
}

std::string Decider::Name(const PoolState& pool) const {
  return sets_.size() < 2 ? pool.view->id
                          : absl::StrCat(pool.view->id, " of ", pool.view->workflow_set);
}

void Decider::Note(const std::string& text) {
  if (decision_.detail.size() + text.size() > kMaxDetail) return;
  absl::StrAppend(&decision_.detail, decision_.detail.empty() ? "" : "; ", text);
}

}  // namespace

PolicyDecision UtilizationPolicy::Decide(const PolicyView& view) const {
  return Decider(view, config_).Run();
}

}  // namespace onepiece::nodemanager
