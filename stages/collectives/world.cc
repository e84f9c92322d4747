#include "stages/collectives/world.h"

#include <algorithm>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::collectives {

absl::StatusOr<int> RankIn(const sdk::GroupDescriptor& descriptor, std::uint32_t index,
                           std::uint32_t workers) {
  ONEPIECE_RETURN_IF_ERROR(sdk::CheckDescriptor(descriptor));
  const auto bad = [&descriptor](const std::string& what) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_GROUP",
                           "group \"" + descriptor.job + "\": " + what);
  };
  for (const std::uint32_t member : descriptor.members) {
    if (member >= workers) {
      return bad("the world has " + std::to_string(workers) + " workers, and no worker " +
                 std::to_string(member));
    }
  }
  const auto at = std::ranges::find(descriptor.members, index);
  if (at == descriptor.members.end()) {
    return bad("worker " + std::to_string(index) + " is not a member");
  }
  return static_cast<int>(at - descriptor.members.begin());
}

}  // namespace onepiece::collectives
