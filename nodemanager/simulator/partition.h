// Finds the best cut of a workflow's stages into pools, from its profile (docs/elasticity.md,
// "Simulator").
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/simulator/system.h"

namespace onepiece::simulator {

/// Neighbouring stages that one instance runs one after the other.
struct Group {
  std::vector<std::string> stages;
  int devices = 1;         ///< For one instance: `degree` if one of its stages is parallel, or 1.
  double seconds = 0;      ///< How long an average job takes in one instance.
  double waste_s = 0;      ///< Device seconds of such a job in which devices wait for another.
  std::int64_t bytes = 0;  ///< Weights on each of its devices.
  int instances = 0;
  double utilization = 0;  ///< At the cut's rate.
};

/// One way to cut a chain of stages into groups.
struct Cut {
  std::vector<Group> groups;
  int devices = 0;       ///< The devices of all instances.
  double rate = 0;       ///< Jobs/s: what was asked for, or the most that the devices can take.
  double balance = 0;    ///< Mean utilisation, weighted by devices, over the highest. 1 is perfect.
  double latency_s = 0;  ///< A job that waits nowhere takes this long, with transfers.
};

struct Partition {
  std::vector<Cut> cuts;  ///< Best first.
  int too_large = 0;      ///< Cuts left out because a group's weights do not fit a device.
};

/// When a rate is asked for, each pool of a cut gets so many instances that it is at most this
/// busy.
inline constexpr double kPartitionUtilization = 0.85;

/// Makes all cuts of the application's chain. If settings.rate is given, the cut that takes it with
/// the fewest devices is best. Otherwise the cut that takes the highest rate with settings.devices
/// is best. Among equal cuts the better balanced one comes first, and then the one with fewer
/// groups.
/// REQUIRES: `settings` is complete.
///
/// Errors: INVALID_ARGUMENT (BAD_PROFILE, NOT_A_CHAIN), FAILED_PRECONDITION (TOO_FEW_DEVICES) when
/// no cut fits.
absl::StatusOr<Partition> PartitionApp(const v1::SimulationProfile& profile,
                                       const v1::SimulationConfig& settings, std::size_t app);

/// "text+image | dit ×7 | decode"
std::string CutText(const Cut& cut);

}  // namespace onepiece::simulator
