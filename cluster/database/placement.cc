#include "cluster/database/placement.h"

#include <algorithm>

namespace onepiece::database {

std::vector<const std::string*> KeepersOf(const base::Uid& uid,
                                          std::span<const node::DatabasePlace> databases,
                                          int copies) {
  std::vector<const std::string*> keepers;
  if (databases.size() <= static_cast<std::size_t>(copies)) {
    for (const node::DatabasePlace& place : databases) keepers.push_back(&place.node_id);
    return keepers;
  }
  for (const std::size_t place :
       node::DatabaseOrder(uid, databases, static_cast<std::size_t>(copies)))
    keepers.push_back(&databases[place].node_id);
  return keepers;
}

bool Keeps(const base::Uid& uid, const std::string& node_id,
           std::span<const node::DatabasePlace> databases, int copies) {
  return std::ranges::any_of(KeepersOf(uid, databases, copies),
                             [&](const std::string* keeper) { return *keeper == node_id; });
}

}  // namespace onepiece::database
