#include "cluster/database/placement.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cluster/node/routing.h"

namespace onepiece::database {

std::vector<const std::string*> KeepersOf(const base::Uid& uid,
                                          std::span<const std::string> databases, int copies) {
  std::vector<const std::string*> keepers;
  if (databases.size() <= static_cast<std::size_t>(copies)) {
    for (const std::string& id : databases) keepers.push_back(&id);
    return keepers;
  }
  std::vector<std::pair<std::uint64_t, const std::string*>> weighed;
  for (const std::string& id : databases)
    weighed.emplace_back(node::RendezvousWeight(uid, id), &id);
  const auto heavier = [](const auto& a, const auto& b) {
    // Equal weights need an order of their own, so that every database chooses the same keepers.
    return a.first != b.first ? a.first > b.first : *a.second < *b.second;
  };
  std::ranges::partial_sort(weighed, weighed.begin() + copies, heavier);
  for (int i = 0; i < copies; ++i) keepers.push_back(weighed[static_cast<std::size_t>(i)].second);
  return keepers;
}

bool Keeps(const base::Uid& uid, const std::string& node_id, std::span<const std::string> databases,
           int copies) {
  return std::ranges::any_of(KeepersOf(uid, databases, copies),
                             [&](const std::string* keeper) { return *keeper == node_id; });
}

}  // namespace onepiece::database
