// A world over gloo (https://github.com/facebookincubator/gloo), for hosts without our fabric and
// to compare with. Making a group connects its members anew, over TCP.
//
// gloo neither authenticates nor encrypts: the interface must be one that only this cluster's hosts
// reach.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "stages/collectives/world.h"

namespace onepiece::collectives {

struct GlooWorldOptions {
  std::uint32_t index = 0;
  std::uint32_t workers = 0;
  /// A folder of this world alone that all workers reach. It must exist, and is not cleaned up.
  std::string folder;
  std::string interface = "lo";
  /// How long MakeGroup waits for the other members.
  base::Duration group_time = std::chrono::seconds(30);
};

/// All members must make a group equally often. MakeGroup waits for them, and has the further
/// errors DEADLINE_EXCEEDED (RANK_SILENT: a member has not come) and INTERNAL (GLOO_FAILED).
///
/// The groups differ from those of the fabric: a broken connection is all that they see of a death,
/// so a group that a member ended can look like a death of that member; a rank that waits for
/// nobody hears of a mismatch only at its deadline.
class GlooWorld final : public World {
 public:
  /// Errors: INVALID_ARGUMENT (BAD_WORLD), INTERNAL (GLOO_FAILED: no such interface).
  static absl::StatusOr<std::unique_ptr<GlooWorld>> Open(const GlooWorldOptions& options);
  ~GlooWorld() override;

  [[nodiscard]] std::uint32_t index() const override;
  [[nodiscard]] std::uint32_t workers() const override;
  absl::StatusOr<std::unique_ptr<sdk::Group>> MakeGroup(
      const sdk::GroupDescriptor& descriptor) override;

 private:
  struct State;
  class Group;
  explicit GlooWorld(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace onepiece::collectives
