#include "stages/instance/keepers.h"

#include <algorithm>

namespace onepiece::instance {

bool IsKept(const message::Header& header, const node::Routing& routing, const std::string& self) {
  // What this instance keeps for itself ends with it.
  if (header.keeper.empty() || header.keeper == self) return false;
  return !routing.IsOver(header.keeper, header.keeper_incarnation, header.routing_epoch,
                         routing.table().workflow_set());
}

bool IsKept(const runtime::WorkItem& item, const node::Routing& routing, const std::string& self) {
  if (item.parts.empty()) return IsKept(item.message.header, routing, self);
  return std::ranges::all_of(
      item.parts, [&](const message::Message& part) { return IsKept(part.header, routing, self); });
}

}  // namespace onepiece::instance
