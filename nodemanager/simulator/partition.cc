#include "nodemanager/simulator/partition.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"

namespace onepiece::simulator {
namespace {

Group Fuse(const System& system, const App& app, std::size_t first, std::size_t end, int degree) {
  Group group;
  for (std::size_t s = first; s < end; ++s) {
    for (const Part& part : app.stages[s].parts)
      if (part.parallel) group.devices = degree;
  }
  std::map<int, std::int64_t> bytes;  // By pool, because the stages of a pool share one model.
  double work_s = 0;
  for (std::size_t s = first; s < end; ++s) {
    const Stage& stage = app.stages[s];
    group.stages.push_back(stage.name);
    bytes[stage.pool] = system.pools[stage.pool].weights_bytes;
    for (const Part& part : stage.parts) {
      group.seconds += part.seconds / (part.parallel ? group.devices : 1);
      work_s += part.seconds;
    }
  }
  for (const auto& [pool, size] : bytes) group.bytes += size;
  group.waste_s = group.seconds * group.devices - work_s;
  return group;
}

// Gives each group as many instances as `rate` needs.
void SizeFor(double rate, Cut& cut) {
  cut.rate = rate;
  for (Group& group : cut.groups) {
    // The small term keeps a rounding error from adding an instance to an exact fit.
    group.instances = std::max(
        1, static_cast<int>(std::ceil(rate * group.seconds / kPartitionUtilization - 1e-9)));
    cut.devices += group.instances * group.devices;
  }
}

// Gives the narrowest group one more instance as long as there are devices. Returns false when not
// even one instance of each group fits.
bool SizeWithin(int devices, Cut& cut) {
  for (Group& group : cut.groups) {
    group.instances = 1;
    cut.devices += group.devices;
  }
  if (cut.devices > devices) return false;
  for (;;) {
    Group* narrowest = &cut.groups.front();
    for (Group& group : cut.groups) {
      if (group.instances / group.seconds < narrowest->instances / narrowest->seconds)
        narrowest = &group;
    }
    cut.rate = narrowest->instances / narrowest->seconds;
    if (cut.devices + narrowest->devices > devices) return true;
    ++narrowest->instances;
    cut.devices += narrowest->devices;
  }
}

void Judge(const App& app, Cut& cut) {
  double weighted = 0, greatest = 0;
  std::size_t last = 0;
  for (Group& group : cut.groups) {
    group.utilization = cut.rate * group.seconds / group.instances;
    greatest = std::max(greatest, group.utilization);
    weighted += group.utilization * group.instances * group.devices;
    last += group.stages.size();
    cut.latency_s += group.seconds + app.stages[last - 1].transfer_s;
  }
  cut.balance = weighted / cut.devices / greatest;
}

bool Better(const Cut& a, const Cut& b, bool by_devices) {
  // Rounding makes numbers equal that were summed in another order.
  const auto key = [&](const Cut& cut) {
    const double first = by_devices ? cut.devices : -std::round(cut.rate * 1e9);
    return std::tuple(first, -std::round(cut.balance * 1e9), cut.groups.size());
  };
  return key(a) < key(b);
}

}  // namespace

absl::StatusOr<Partition> PartitionApp(const v1::SimulationProfile& profile,
                                       const v1::SimulationConfig& settings, std::size_t index) {
  ONEPIECE_ASSIGN_OR_RETURN(const System system, MakeDisaggregated(profile, settings));
  const App& app = system.apps.at(index);
  const std::size_t stages = app.stages.size();
  for (std::size_t s = 1; s < stages; ++s) {
    if (app.stages[s].after == std::vector<int>{static_cast<int>(s) - 1}) continue;
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NOT_A_CHAIN",
                           "application " + app.id + " is no chain of stages: '" +
                               app.stages[s].name +
                               "' does not follow the one before it alone. Only chains are cut");
  }
  Partition partition;
  const bool by_devices = settings.rate() > 0;
  // Each bit of `places` cuts between two neighbouring stages.
  for (std::uint32_t places = 0; places < (1U << (stages - 1)); ++places) {
    Cut cut;
    std::size_t first = 0;
    for (std::size_t s = 1; s <= stages; ++s) {
      if (s < stages && (places >> (s - 1) & 1U) == 0) continue;
      cut.groups.push_back(Fuse(system, app, first, s, settings.degree()));
      first = s;
    }
    if (settings.device_bytes() > 0 && std::ranges::any_of(cut.groups, [&](const Group& group) {
          return group.bytes > settings.device_bytes();
        })) {
      ++partition.too_large;
      continue;
    }
    if (by_devices) {
      SizeFor(settings.rate(), cut);
    } else if (!SizeWithin(settings.devices(), cut)) {
      continue;
    }
    Judge(app, cut);
    partition.cuts.push_back(std::move(cut));
  }
  if (partition.cuts.empty()) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "TOO_FEW_DEVICES",
        absl::StrCat("no cut of ", app.id, " fits ", settings.devices(), " devices",
                     partition.too_large > 0 ? " of device_bytes memory" : ""));
  }
  std::ranges::stable_sort(partition.cuts,
                           [&](const Cut& a, const Cut& b) { return Better(a, b, by_devices); });
  return partition;
}

std::string CutText(const Cut& cut) {
  std::vector<std::string> groups;
  for (const Group& group : cut.groups)
    groups.push_back(absl::StrJoin(group.stages, "+") +
                     (group.instances > 1 ? absl::StrCat(" ×", group.instances) : ""));
  return absl::StrJoin(groups, " | ");
}

}  // namespace onepiece::simulator
