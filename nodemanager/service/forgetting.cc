#include "nodemanager/service/forgetting.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "cluster/base/seconds.h"

namespace onepiece::nodemanager {
namespace {

bool IsEphemeral(const v1::Node& node) {
  const auto label = node.labels().find(kEphemeralLabel);
  return label != node.labels().end() && label->second == "true";
}

}  // namespace

std::vector<v1::RemoveNode> Forgetting::Due(const StateMachine& state, base::MonotonicTime now) {
  v1::Command any;
  any.mutable_remove_node();
  if (state.feature_level() < VersionOf(any)) return {};
  std::map<std::string, Dead> dead;
  std::vector<std::pair<base::Duration, v1::RemoveNode>> due;
  for (const auto& [id, record] : state.nodes()) {
    const v1::Node& node = record.node();
    if (IsAlive(node)) continue;
    Dead entry{.incarnation = node.incarnation(), .since = now};
    if (const auto known = dead_.find(id);
        known != dead_.end() && known->second.incarnation == node.incarnation())
      entry = known->second;
    dead[id] = entry;
    const bool ephemeral = IsEphemeral(node);
    const base::Duration age = now - entry.since;
    if (!ephemeral && age < after_) continue;
    v1::RemoveNode& remove = due.emplace_back(age, v1::RemoveNode()).second;
    remove.set_node_id(id);
    remove.set_incarnation(node.incarnation());
    remove.set_actor("nodemanager");
    remove.set_reason(ephemeral ? "dead, and ephemeral"
                                : absl::StrFormat("dead for %.0f s", base::ToSeconds(age)));
  }
  dead_ = std::move(dead);
  std::ranges::stable_sort(due, std::greater(), [](const auto& each) { return each.first; });
  std::vector<v1::RemoveNode> removals;
  for (std::size_t i = 0; i < std::min(due.size(), kAtOnce); ++i)
    removals.push_back(std::move(due[i].second));
  return removals;
}

}  // namespace onepiece::nodemanager
