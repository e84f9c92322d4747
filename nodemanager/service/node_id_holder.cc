#include "nodemanager/service/node_id_holder.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {
namespace {

std::string Where(const v1::Node& node) {
  return absl::StrCat(node.address(), " (", node.host().empty() ? "" : node.host() + ", ", "pid ",
                      node.pid(), ")");
}

}  // namespace

std::optional<v1::Node> FindOtherHolder(const StateMachine& state, const v1::Node& node) {
  const auto known = state.nodes().find(node.node_id());
  if (known == state.nodes().end() || !IsAlive(known->second.node())) return std::nullopt;
  const v1::Node& holder = known->second.node();
  const bool same = holder.address() == node.address() && holder.host() == node.host() &&
                    holder.pid() == node.pid();
  if (same) return std::nullopt;
  return holder;
}

absl::Status CheckHolder(const v1::Node& holder, const v1::Node& node, const HolderSigns& signs) {
  const bool runs = holder.address() == node.address()
                        ? signs.silent && *signs.silent <= signs.silence_limit
                        : signs.dialling != nullptr && signs.dialling->Answers();
  if (!runs) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kAlreadyExists, "NODE_ID_IN_USE",
      absl::StrCat("node id '", node.node_id(), "' belongs to a process that runs, at ",
                   Where(holder), ", so the one at ", Where(node),
                   " is not let in: give it an id of its own (--node-id), or stop the other one"),
      {{"node_id", node.node_id()},
       {"address", node.address()},
       {"holder_address", holder.address()}});
}

}  // namespace onepiece::nodemanager
