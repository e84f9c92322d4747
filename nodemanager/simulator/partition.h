// The best cut of a workflow's stages into pools, from its profile (the paper's partitioning).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/system.h"

namespace onepiece::simulator {

/// Neighbouring stages that one instance runs one after the other.
struct Group {
  std::vector<std::string> stages;
  int devices = 1;         ///< Of an instance: `degree` when one of its stages is parallel.
  double seconds = 0;      ///< An average job in one instance.
  double waste_s = 0;      ///< Device seconds of it in which devices wait for another.
  std::int64_t bytes = 0;  ///< Weights on each of its devices.
  int instances = 0;
  double utilization = 0;  ///< At the cut's rate.
};

struct Cut {
  std::vector<Group> groups;
  int devices = 0;       ///< Of all instances.
  double rate = 0;       ///< Jobs/s: what was asked for, or the most that the devices can take.
  double balance = 0;    ///< Mean utilisation, by devices, over the greatest: 1 is perfect.
  double latency_s = 0;  ///< Of a job that waits nowhere, transfers between groups included.
};

struct Partition {
  std::vector<Cut> cuts;  ///< Best first.
  int too_large = 0;      ///< Cuts left out because the weights of a group don't fit a device.
};

/// A cut's pools are kept at most this busy when a rate is asked for.
inline constexpr double kPartitionUtilization = 0.85;

/// All cuts of the application's chain. With settings.rate: those that take it with the fewest
/// devices are best; otherwise those that take the most with settings.devices. Among equals the
/// better balanced one, then the one with fewer groups. REQUIRES: `settings` is complete. Errors:
/// INVALID_ARGUMENT (BAD_PROFILE), (NOT_A_CHAIN), FAILED_PRECONDITION (TOO_FEW_DEVICES) when no cut
/// fits.
absl::StatusOr<Partition> PartitionApp(const v1::SimulationProfile& profile,
                                       const v1::SimulationConfig& settings, std::size_t app);

/// "text+image | dit ×7 | decode"
std::string CutText(const Cut& cut);

}  // namespace onepiece::simulator
