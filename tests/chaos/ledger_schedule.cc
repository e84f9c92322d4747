#include "tests/chaos/ledger_schedule.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::ledger {
namespace {

using paxos::sim::Random;
using std::chrono::milliseconds;

constexpr milliseconds kFirst(3'000);  // The load has announced something by then.
constexpr double kShortestGapMs = 500, kLongestGapMs = 8'000;  // At kFaultsPerMinute.
constexpr int kDraws = 20;  // Until one keeps the rules; then time passes.

struct Suffering {
  Role role;
  int victim;
  milliseconds until;
};

bool IsManagers(Role role) { return role == Role::kNodeManager || role == Role::kGroup; }

bool IsDatabases(Role role) { return role == Role::kDatabase || role == Role::kMachine; }

bool KeepsRules(const Injury& injury, const std::vector<Suffering>& suffering,
                const Population& population) {
  int managers = injury.role == Role::kNodeManager ? 1 : 0;
  for (const Suffering& other : suffering) {
    if (other.until <= injury.at) continue;
    if (IsDatabases(injury.role) && IsDatabases(other.role)) return false;
    if (other.role == injury.role && other.victim == injury.victim) return false;
    const bool group = injury.role == Role::kGroup || other.role == Role::kGroup;
    if (group && IsManagers(injury.role) && IsManagers(other.role)) return false;
    managers += other.role == Role::kNodeManager ? 1 : 0;
  }
  const int all = population[static_cast<std::size_t>(Role::kNodeManager)];
  return injury.role != Role::kNodeManager || managers * 2 < all;
}

milliseconds DrawLength(Random& random, const FaultKind& fault) {
  const auto shortest = static_cast<double>(fault.shortest.count());
  const auto longest = static_cast<double>(fault.longest.count());
  // Drawn in any case, so that all kinds take the same number of draws.
  const double unit = random.Unit();
  if (longest <= 0) return milliseconds::zero();
  return milliseconds(std::lround(shortest * std::pow(longest / shortest, unit)));
}

Injury Draw(Random& random, milliseconds at, const std::vector<FaultKind>& faults,
            const Population& population) {
  const FaultKind& fault = random.Pick(faults);
  Injury injury{.at = at, .fault = fault.name, .kind = fault.kind};
  injury.role = random.Pick(fault.roles);
  const int count = population[static_cast<std::size_t>(injury.role)];
  injury.victim = static_cast<int>(random.Below(static_cast<std::uint64_t>(std::max(1, count))));
  injury.lasts = DrawLength(random, fault);
  injury.dice = random.Next();
  return injury;
}

std::vector<FaultKind> MakeFaultKinds() {
  const std::vector<Role> nodes = {Role::kDatabase, Role::kInstance, Role::kProxy};
  std::vector<Role> all = nodes;
  all.push_back(Role::kNodeManager);
  const milliseconds none(0);
  const milliseconds short_stop(100), long_stop(10'000);
  return {
      {"kill_database", Kind::kKill, {Role::kDatabase}, none, none},
      {"kill_instance", Kind::kKill, {Role::kInstance}, none, none},
      {"kill_proxy", Kind::kKill, {Role::kProxy}, none, none},
      {"kill_nodemanager", Kind::kKill, {Role::kNodeManager}, none, none},
      {"stop_database", Kind::kStop, {Role::kDatabase}, short_stop, long_stop},
      {"stop_instance", Kind::kStop, {Role::kInstance}, short_stop, long_stop},
      {"stop_proxy", Kind::kStop, {Role::kProxy}, short_stop, long_stop},
      {"stop_nodemanager", Kind::kStop, {Role::kNodeManager}, short_stop, long_stop},
      {"link_down", Kind::kLinkDown, nodes, milliseconds(500), milliseconds(10'000)},
      {"drop_packets", Kind::kDropPackets, nodes, milliseconds(500), milliseconds(10'000)},
      {"disk_full", Kind::kDiskFull, {Role::kDatabase}, milliseconds(2'000), milliseconds(10'000)},
      {"shm_full", Kind::kShmFull, {Role::kMachine}, milliseconds(1'000), milliseconds(5'000)},
      {"bit_flip", Kind::kBitFlip, {Role::kDatabase}, none, none},
      {"clock_jump", Kind::kClockJump, all, milliseconds(2'000), milliseconds(10'000)},
      {"memory_limit", Kind::kMemoryLimit, nodes, milliseconds(1'000), milliseconds(5'000)},
      {"all_disks_lost",
       Kind::kAllDisksLost,
       {Role::kGroup},
       milliseconds(500),
       milliseconds(5'000)},
      {"majority_lost",
       Kind::kMajorityLost,
       {Role::kGroup},
       milliseconds(500),
       milliseconds(5'000)},
      {"rotate_ca", Kind::kRotateAuthority, {Role::kGroup}, none, none},
      {"revoke_bystander", Kind::kRevokeBystander, {Role::kGroup}, none, none},
  };
}

}  // namespace

std::string_view NameOf(Role role) {
  switch (role) {
    case Role::kDatabase:
      return "database";
    case Role::kInstance:
      return "instance";
    case Role::kProxy:
      return "proxy";
    case Role::kNodeManager:
      return "nodemanager";
    case Role::kMachine:
      return "machine";
    case Role::kGroup:
      return "group";
  }
  return "?";
}

const std::vector<FaultKind>& FaultKinds() {
  static const std::vector<FaultKind> kinds = MakeFaultKinds();
  return kinds;
}

absl::StatusOr<std::vector<FaultKind>> ParseFaults(std::string_view list) {
  if (list == "all") return FaultKinds();
  std::vector<FaultKind> faults;
  if (list == "none") return faults;
  for (const absl::string_view part : absl::StrSplit(base::AbslView(list), ',')) {
    const std::string_view name = base::View(part);
    const auto known = std::ranges::find(FaultKinds(), name, &FaultKind::name);
    if (known == FaultKinds().end()) {
      std::string names;
      for (const FaultKind& kind : FaultKinds()) names += " " + std::string(kind.name);
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_FAULT",
                             "no fault \"" + std::string(name) + "\"; there are: all" + names);
    }
    faults.push_back(*known);
  }
  return faults;
}

std::string ToText(const Injury& injury) {
  std::string text = absl::StrFormat("%.1f s ", static_cast<double>(injury.at.count()) / 1000.0);
  absl::StrAppend(&text, std::string(injury.fault), " ", std::string(NameOf(injury.role)), " ",
                  injury.victim + 1);
  if (injury.lasts.count() > 0) absl::StrAppend(&text, " for ", injury.lasts.count(), " ms");
  return text;
}

milliseconds RecoveryOf(Role role) {
  return milliseconds(IsDatabases(role) || role == Role::kGroup ? 15'000 : 5'000);
}

std::vector<Injury> MakeSchedule(std::uint64_t seed, milliseconds length,
                                 const std::vector<FaultKind>& faults, const Population& population,
                                 double faults_per_minute) {
  std::vector<Injury> schedule;
  if (faults.empty()) return schedule;
  Random random(seed);
  std::vector<Suffering> suffering;
  milliseconds now = kFirst;
  while (now < length) {
    for (int draw = 0; draw < kDraws; ++draw) {
      const Injury injury = Draw(random, now, faults, population);
      if (!KeepsRules(injury, suffering, population)) continue;
      suffering.push_back(
          {injury.role, injury.victim, now + injury.lasts + RecoveryOf(injury.role)});
      schedule.push_back(injury);
      break;
    }
    now += milliseconds(std::lround(random.LogBetween(kShortestGapMs, kLongestGapMs) *
                                    (kFaultsPerMinute / faults_per_minute)));
  }
  return schedule;
}

}  // namespace onepiece::ledger
