// Where work goes: an immutable, indexed view of the NodeManager's routing table.
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
#include "cluster/workflow/graph.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

/// Pure: no clock, no network.
///
/// Ownership: Owns its table; what it returns lives as long as it does.
/// Threading: Immutable; share it as shared_ptr<const Routing>.
class Routing {
 public:
  /// An empty table of epoch 0: nobody is alive.
  Routing() : Routing(v1::RoutingTable()) {}
  explicit Routing(v1::RoutingTable table);

  [[nodiscard]] const v1::RoutingTable& table() const { return table_; }
  [[nodiscard]] std::uint64_t epoch() const { return table_.epoch(); }

  /// The application, or nullptr.
  [[nodiscard]] const v1::Workflow* FindWorkflow(std::string_view app) const;
  /// Position of the stage among the application's stages; nullopt when either is unknown.
  [[nodiscard]] std::optional<int> StageIndex(std::string_view app, std::string_view stage) const;
  /// How the application's stages follow each other; of an unknown one, no stages.
  [[nodiscard]] const workflow::Graph& GraphOf(std::string_view app) const;
  /// READY instances of a stage, by node id; empty when there are none.
  [[nodiscard]] std::span<const v1::Endpoint> Instances(std::string_view app,
                                                        std::string_view stage) const;
  /// The READY instance where the branches of the job meet before a stage that joins them:
  /// rendezvous hashing, so that every node with this table names the same one. Never the node
  /// `without`. nullopt when there is none.
  [[nodiscard]] std::optional<v1::Endpoint> MeetingPoint(std::string_view app,
                                                         std::string_view stage,
                                                         const base::Uid& uid,
                                                         std::string_view without = "") const;
  /// True while the NodeManager has not declared this incarnation dead. An unknown node is not
  /// alive.
  [[nodiscard]] bool IsAlive(std::string_view node_id, std::uint64_t incarnation) const;
  /// True unless the table shows that this incarnation is over. A later incarnation than the
  /// table's may be alive: then the table is old, and proves nothing.
  [[nodiscard]] bool MayBeAlive(std::string_view node_id, std::uint64_t incarnation) const;
  /// Every database instance, the best place for `uid` first: rendezvous hashing, so that every
  /// node computes the same order and a change of the set moves only the jobs of the node that came
  /// or went.
  [[nodiscard]] std::vector<v1::Endpoint> DatabasesFor(const base::Uid& uid) const;
  [[nodiscard]] std::vector<v1::Endpoint> Databases() const;
  [[nodiscard]] std::vector<v1::Endpoint> Proxies() const;

 private:
  v1::RoutingTable table_;
  std::map<std::string, int, std::less<>> workflows_;  // app_id → index in table_.workflows.
  std::vector<workflow::Graph> graphs_;                // In the order of table_.workflows.
  std::map<std::pair<std::string, std::string>, std::vector<v1::Endpoint>> instances_;
  std::map<std::string, std::uint64_t, std::less<>> alive_;  // Node → incarnation.
};

/// Weight of a node for a job: FNV-1a of the uid's 16 bytes and the node id, finished with
/// SplitMix64's mixer. The node with the largest weight comes first. Part of the cluster's
/// protocol: every build must compute the same.
std::uint64_t RendezvousWeight(const base::Uid& uid, std::string_view node_id);

}  // namespace onepiece::node
