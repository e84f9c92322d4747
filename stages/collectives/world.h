// The workers that can form groups: a host set whose ways to each other exist beforehand
// (docs/collaboration.md).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/sdk/group.h"

namespace onepiece::collectives {

/// One worker's end of a world.
///
/// Threading: one thread at a time, its groups included.
class World {
 public:
  virtual ~World() = default;
  /// This worker's place in the world.
  [[nodiscard]] virtual std::uint32_t index() const = 0;
  [[nodiscard]] virtual std::uint32_t workers() const = 0;

  /// Makes this worker's end of a group, which borrows the world. Groups of one epoch can be used
  /// by turns, such as those of a job's rows and columns; a job's parts differ in their name.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_GROUP: as CheckDescriptor; also a worker that the world has not,
  /// a group without this worker, or an epoch before that of another group of this worker),
  /// UNAVAILABLE (RANK_LOST: a member is known to be dead).
  virtual absl::StatusOr<std::unique_ptr<sdk::Group>> MakeGroup(
      const sdk::GroupDescriptor& descriptor) = 0;
};

/// Returns this worker's rank in the group.
///
/// Errors: INVALID_ARGUMENT (BAD_GROUP, but for the epoch).
absl::StatusOr<int> RankIn(const sdk::GroupDescriptor& descriptor, std::uint32_t index,
                           std::uint32_t workers);

/// BAD_GROUP for a group of an epoch before `epoch`, in which this worker is.
absl::Status EpochTooSmall(const sdk::GroupDescriptor& descriptor, std::uint64_t epoch);

}  // namespace onepiece::collectives
