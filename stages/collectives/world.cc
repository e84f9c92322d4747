#include "stages/collectives/world.h"

#include <algorithm>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::collectives {
namespace {

absl::Status BadGroup(const sdk::GroupDescriptor& descriptor, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_GROUP",
                         "group \"" + descriptor.job + "\": " + what);
}

}  // namespace

absl::StatusOr<int> RankIn(const sdk::GroupDescriptor& descriptor, std::uint32_t index,
                           std::uint32_t workers) {
  ONEPIECE_RETURN_IF_ERROR(sdk::CheckDescriptor(descriptor));
  for (const std::uint32_t member : descriptor.members) {
    if (member >= workers) {
      return BadGroup(descriptor, "the world has " + std::to_string(workers) +
                                      " workers, and no worker " + std::to_string(member));
    }
  }
  const auto at = std::ranges::find(descriptor.members, index);
  if (at == descriptor.members.end()) {
    return BadGroup(descriptor, "worker " + std::to_string(index) + " is not a member");
  }
  return static_cast<int>(at - descriptor.members.begin());
}

absl::Status EpochTooSmall(const sdk::GroupDescriptor& descriptor, std::uint64_t epoch) {
  return BadGroup(descriptor, "epoch " + std::to_string(descriptor.epoch) + " is before " +
                                  std::to_string(epoch) + ", in which this worker is");
}

}  // namespace onepiece::collectives
