// The state machine's commands that keep the cluster itself in order: nodes are forgotten, and the
// feature level is raised.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "nodemanager/state/plan_state.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

std::uint32_t StateMachine::VersionLimit(const v1::Command& command) const {
  if (revision_ == 0) return kAnyVersion;
  if (command.has_raise_feature_level())
    return std::max(version_, command.raise_feature_level().level());
  // A group that was made from a backup begins with the program that made it.
  if (command.has_begin_generation()) return std::max(version_, VersionOf(command));
  return version_;
}

void StateMachine::EnterVersion(std::uint32_t version) {
  const std::uint32_t before = version_;
  version_ = std::max(version_, std::min(version, kCommandVersion));
  if (version_ >= 2 && plan_revision_ == 0) plan_revision_ = 1;
  // Before version 3 nobody noted why the history was cut.
  if (before < 3 && version_ >= 3) deletions_forgotten_ = history_floor_ > 0;
  // From version 4 on the routing tables say on which hosts databases are.
  if (before < 4 && version_ >= 4 && revision_ > 0) changed_sets_.all = true;
}

absl::Status StateMachine::RemoveNode(const v1::RemoveNode& change, std::int64_t time) {
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", change.actor()));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("reason", change.reason()));
  const auto known = nodes_.find(change.node_id());
  const bool any = change.incarnation() == 0;
  if (known == nodes_.end()) {
    if (!any) return absl::OkStatus();
    return base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN",
                           absl::StrCat("there is no node '", change.node_id(), "'"),
                           {{"node_id", change.node_id()}});
  }
  const v1::Node& node = known->second.node();
  // Whoever names an incarnation means no other one. The node may have come back since.
  if (!any && (node.incarnation() != change.incarnation() || IsAlive(node)))
    return absl::OkStatus();
  if (IsAlive(node)) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "NODE_ALIVE",
        absl::StrCat("node '", change.node_id(), "' at ", node.address(),
                     " reports: stop its process first (an instance: drain it before that)"),
        {{"node_id", change.node_id()}});
  }
  Forget(known);
  PlanInputChanged();
  Audit(time, "remove_node", change.node_id(), absl::StrCat(change.actor(), ": ", change.reason()));
  return absl::OkStatus();
}

// Apply() has raised the level already, because the command was proposed under it.
absl::Status StateMachine::RaiseFeatureLevel(const v1::RaiseFeatureLevel& change,
                                             std::int64_t time) {
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", change.actor()));
  EnterVersion(change.level());
  // Only a snapshot shows watchers the level.
  history_floor_ = ++revision_;
  Audit(time, "raise_feature_level", absl::StrCat(version_), change.actor());
  return absl::OkStatus();
}

}  // namespace onepiece::nodemanager
