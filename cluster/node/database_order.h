// In which order the databases keep a job (docs/database.md, "Replication"). Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "cluster/base/ids.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

/// A database, and the failure domains where it runs.
struct DatabasePlace {
  std::string node_id;
  std::string host, zone;  ///< Empty: unknown.

  friend bool operator==(const DatabasePlace&, const DatabasePlace&) = default;
};

DatabasePlace PlaceOf(const v1::Endpoint& database);
/// Returns the places of the table's databases, sorted by node id.
std::vector<DatabasePlace> DatabasePlaces(const v1::RoutingTable& table);
/// Returns the place of this node, or null.
const DatabasePlace* FindPlace(std::span<const DatabasePlace> places, const std::string& node_id);
/// Returns the place as a text that differs for different places: the node id alone where the
/// failure domains are unknown.
std::string TextOf(const DatabasePlace& place);

/// Returns which `places` keep the job, as indices: the first `count` of the order, or all.
///
/// The next one is always of the zone that has the fewest before it, and there of the host that has
/// the fewest, and there it is the one with the largest RendezvousWeight. So copies are in as many
/// zones, and on as many hosts, as there are. A node of an unknown host counts as a host of its
/// own. All nodes of unknown zones count as one zone. Where all hosts are different, unknown or the
/// same one, and all zones too, this is the order of the weights.
///
/// A database that comes or goes moves one copy of the jobs that it gets or had, and no other.
///
/// Part of the cluster's protocol: every build must compute the same.
std::vector<std::size_t> DatabaseOrder(const base::Uid& uid, std::span<const DatabasePlace> places,
                                       std::size_t count);

}  // namespace onepiece::node
