// Says where work goes: an immutable, indexed view of the NodeManager's routing table.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/base/ids.h"
#include "cluster/node/database_order.h"
#include "cluster/workflow/graph.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

/// A routing table with its indexes. Uses neither a clock nor the network.
///
/// Ownership: Owns its table. The references that it returns live as long as it does.
///
/// Threading: Immutable. Share it as shared_ptr<const Routing>.
class Routing {
 public:
  /// An empty table of epoch 0, in which no node is alive.
  Routing() : Routing(v1::RoutingTable()) {}
  explicit Routing(v1::RoutingTable table);

  [[nodiscard]] const v1::RoutingTable& table() const { return table_; }
  [[nodiscard]] std::uint64_t epoch() const { return table_.epoch(); }

  /// Returns the application, or nullptr.
  [[nodiscard]] const v1::Workflow* FindWorkflow(std::string_view app) const;
  /// Returns the position of the stage among the application's stages, or nullopt when either is
  /// unknown.
  [[nodiscard]] std::optional<int> StageIndex(std::string_view app, std::string_view stage) const;
  /// Returns how the application's stages follow each other. The graph of an unknown application is
  /// empty.
  [[nodiscard]] const workflow::Graph& GraphOf(std::string_view app) const;
  /// Returns the READY instances of a stage, sorted by node id.
  [[nodiscard]] std::span<const v1::Endpoint> Instances(std::string_view app,
                                                        std::string_view stage) const;
  /// Returns the READY instance where the branches of the job meet before a stage that joins them,
  /// or nullopt when there is none. Rendezvous hashing lets every node with this table name the
  /// same instance. It is never the node `without`.
  [[nodiscard]] std::optional<v1::Endpoint> MeetingPoint(std::string_view app,
                                                         std::string_view stage,
                                                         const base::Uid& uid,
                                                         std::string_view without = "") const;
  /// Returns true while the NodeManager has not declared this incarnation dead. An unknown node is
  /// not alive.
  [[nodiscard]] bool IsAlive(std::string_view node_id, std::uint64_t incarnation) const;
  /// Returns true when the table shows that this incarnation is dead. `epoch` and `workflow_set`
  /// are those of the table by which it was chosen.
  ///
  /// A table that names a later incarnation of the node shows it. A table that leaves the node out
  /// shows it only when the table is of the same set and not older than `epoch`: an older table may
  /// be from before the node came, the empty table of a node that changes its set says nothing, and
  /// nodes of other sets are in no table of this one. A table that names an earlier incarnation is
  /// from before the node's restart.
  [[nodiscard]] bool IsOver(std::string_view node_id, std::uint64_t incarnation,
                            std::uint64_t epoch, std::string_view workflow_set) const;
  /// Returns every database, the best place for `uid` first (DatabaseOrder). Every node computes
  /// the same order, and a database that comes or goes moves only its own jobs.
  [[nodiscard]] std::vector<v1::Endpoint> DatabasesFor(const base::Uid& uid) const;
  [[nodiscard]] std::vector<v1::Endpoint> Databases() const;
  /// Returns the database of this name, or nullopt when the table has none.
  [[nodiscard]] std::optional<v1::Endpoint> FindDatabase(std::string_view node_id) const;
  [[nodiscard]] std::vector<v1::Endpoint> Proxies() const;

 private:
  v1::RoutingTable table_;
  std::map<std::string, int, std::less<>> workflows_;  // app_id → index in table_.workflows.
  std::vector<workflow::Graph> graphs_;                // In the order of table_.workflows.
  std::map<std::pair<std::string, std::string>, std::vector<v1::Endpoint>> instances_;
  std::vector<DatabasePlace> database_places_;               // In the order of table_.databases.
  std::map<std::string, std::uint64_t, std::less<>> alive_;  // Node → incarnation.
};

/// Returns the weight of a node for a job: FNV-1a of the uid's 16 bytes and the node id, finished
/// with SplitMix64's mixer. The node with the largest weight comes first. Part of the cluster's
/// protocol: every build must compute the same.
std::uint64_t RendezvousWeight(const base::Uid& uid, std::string_view node_id);

}  // namespace onepiece::node
