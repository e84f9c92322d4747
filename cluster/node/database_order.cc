#include "cluster/node/database_order.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "cluster/node/routing.h"

namespace onepiece::node {
namespace {

struct Candidate {
  const DatabasePlace* place = nullptr;
  std::size_t index = 0;
  std::uint64_t weight = 0;
  int in_zone = 0, on_host = 0;  // How many of its zone, and of its host, come before it.

  // Equal weights need an order of their own, so that everybody chooses alike.
  [[nodiscard]] bool ComesBefore(const Candidate& other) const {
    return std::tie(in_zone, on_host, other.weight, place->node_id) <
           std::tie(other.in_zone, other.on_host, weight, other.place->node_id);
  }
};

bool SameHost(const DatabasePlace& a, const DatabasePlace& b) {
  return !a.host.empty() && a.host == b.host;
}

}  // namespace

DatabasePlace PlaceOf(const v1::Endpoint& database) {
  return {.node_id = database.node_id(), .host = database.host(), .zone = database.zone()};
}

std::vector<DatabasePlace> DatabasePlaces(const v1::RoutingTable& table) {
  std::vector<DatabasePlace> places;
  for (const v1::Endpoint& database : table.databases()) places.push_back(PlaceOf(database));
  std::ranges::sort(places, {}, &DatabasePlace::node_id);
  return places;
}

const DatabasePlace* FindPlace(std::span<const DatabasePlace> places, const std::string& node_id) {
  const auto found = std::ranges::find(places, node_id, &DatabasePlace::node_id);
  return found == places.end() ? nullptr : &*found;
}

std::string TextOf(const DatabasePlace& place) {
  if (place.host.empty() && place.zone.empty()) return place.node_id;
  return absl::StrCat(place.node_id, " host=", place.host, " zone=", place.zone);
}

std::vector<std::size_t> DatabaseOrder(const base::Uid& uid, std::span<const DatabasePlace> places,
                                       std::size_t count) {
  std::vector<Candidate> left;
  left.reserve(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    left.push_back(
        {.place = &places[i], .index = i, .weight = RendezvousWeight(uid, places[i].node_id)});
  }
  std::vector<std::size_t> order;
  while (order.size() < count && !left.empty()) {
    auto best = left.begin();
    for (auto each = left.begin() + 1; each != left.end(); ++each) {
      if (each->ComesBefore(*best)) best = each;
    }
    const Candidate taken = *best;
    left.erase(best);
    order.push_back(taken.index);
    for (Candidate& each : left) {
      each.in_zone += each.place->zone == taken.place->zone ? 1 : 0;
      each.on_host += SameHost(*each.place, *taken.place) ? 1 : 0;
    }
  }
  return order;
}

}  // namespace onepiece::node
