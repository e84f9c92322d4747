#include "stages/sdk/group.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "cluster/base/status.h"

namespace onepiece::sdk {

namespace {

constexpr char kRank[] = "rank";  // The key of an error's metadata.

absl::Status BadGroup(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_GROUP", what);
}

}  // namespace

absl::Status CheckDescriptor(const GroupDescriptor& group) {
  if (group.members.empty()) return BadGroup("a group has no members");
  std::set<std::uint32_t> seen;
  for (const std::uint32_t member : group.members) {
    if (!seen.insert(member).second)
      return BadGroup("a group has worker " + std::to_string(member) + " twice");
  }
  if (group.offsets.empty()) return absl::OkStatus();
  if (group.offsets.size() != group.members.size() + 1) {
    return BadGroup("a group of " + std::to_string(group.members.size()) + " has " +
                    std::to_string(group.offsets.size()) +
                    " offsets; it needs one more than members");
  }
  if (group.offsets.front() != 0) return BadGroup("a group's offsets begin at 0");
  if (!std::ranges::is_sorted(group.offsets)) return BadGroup("a group's offsets must not fall");
  return absl::OkStatus();
}

std::vector<std::int64_t> EvenOffsets(std::size_t count, std::int64_t extent) {
  const auto parts = static_cast<std::int64_t>(count);
  std::vector<std::int64_t> offsets;
  for (std::int64_t part = 0; part <= parts; ++part)
    offsets.push_back(part * (extent / parts) + std::min(part, extent % parts));
  return offsets;
}

absl::StatusOr<std::vector<std::int64_t>> PartOffsets(const GroupDescriptor& group,
                                                      std::int64_t extent) {
  if (!group.offsets.empty()) {
    if (group.offsets.back() == extent) return group.offsets;
    return BadGroup("a group's offsets end at " + std::to_string(group.offsets.back()) +
                    ", and the axis at " + std::to_string(extent));
  }
  return EvenOffsets(group.members.size(), extent);
}

absl::Status RankError(absl::StatusCode code, const std::string& reason, int rank,
                       const std::string& message) {
  return base::MakeError(code, reason, "rank " + std::to_string(rank) + ": " + message,
                         {{kRank, std::to_string(rank)}});
}

int FailedRank(const absl::Status& status) {
  const base::ErrorReason reason = base::GetReason(status);
  const auto found = reason.metadata.find(kRank);
  if (found == reason.metadata.end()) return -1;
  const std::string& text = found->second;
  int rank = -1;
  std::from_chars(text.data(), text.data() + text.size(), rank);
  return rank;
}

}  // namespace onepiece::sdk
