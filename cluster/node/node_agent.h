// A node's membership: registers the node with the NodeManager, reports for it and keeps its view
// of the cluster fresh.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/node/cluster_view.h"
#include "onepiece/v1/config.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::rpc {
class Door;
}
namespace onepiece::telemetry {
class Metrics;
}
namespace onepiece::node {

class SharedRoutings;

struct NodeAgentOptions {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string node_id;
  std::vector<std::string> nodemanagers;  ///< host:port of replicas. It learns the others.
  std::string address;                    ///< host:port where peers reach this node.
  std::string metrics_address;
  std::string workflow_set;
  std::string pinned_stage;                ///< Instances only; empty: any.
  std::string version, build, zone, host;  ///< As in v1::Node.
  std::map<std::string, std::string> labels;
  std::vector<v1::Device> devices;        ///< Instances only.
  telemetry::Metrics* metrics = nullptr;  ///< Borrowed. May outlive the agent.
  /// Borrowed. The agent keeps its table (who has a token, which certificates were revoked) fresh.
  /// Null: the node is insecure.
  rpc::Door* door = nullptr;
  /// The folder of the node's certificate, which the agent renews in time. Empty: it has none.
  std::string identity;
  /// Of all agents of this process, when it has many. Null: the agent makes its own tables.
  std::shared_ptr<SharedRoutings> tables;
  base::Duration call_timeout = std::chrono::seconds(2);  ///< For one replica; shorter at first.
};

/// Returns the options of a service that its NodeConfig describes. The addresses are those on which
/// it serves by now (service::Host).
NodeAgentOptions MakeNodeAgentOptions(v1::Role role, const v1::NodeConfig& node,
                                      std::string address, std::string metrics_address,
                                      telemetry::Metrics& metrics, rpc::Door* door);

/// What a node reports about itself.
struct NodeStatus {
  v1::Node::State state = v1::Node::STARTING;  ///< STARTING or READY.
  std::string detail;                          ///< The reason, for people.
  // Instances only:
  std::uint64_t assignment_epoch = 0;    ///< Of the assignment that it serves.
  std::vector<std::string> served_apps;  ///< The applications that it can serve; empty: all.
  bool drained = false;      ///< That assignment is draining, and no work of it is left.
  bool load_failed = false;  ///< A model could not be loaded; `detail` says why.
};

/// Keeps one node registered, and its ClusterView up to date. Timeouts are multiplied by
/// $ONEPIECE_TIME_SCALE.
///
/// While the NodeManager is away, or its replicas choose a leader, everything stays as it was: the
/// agent keeps the last routing, the last assignment and the incarnation, and goes on trying
/// (rpc/replicas.h). When the NodeManager has forgotten the node, the agent registers again with
/// the same incarnation. When the NodeManager has declared the incarnation dead, the agent
/// registers with a greater one, so the view's incarnation may grow during the life of a process.
/// An incarnation is the Unix time in nanoseconds when it began, so it mostly grows from start to
/// start by itself. When it does not, because a clock was set back, the NodeManager refuses it and
/// names the last one, and the agent registers with that and one more.
///
/// A routing table is never older than the one before. The table of another cluster, whose id or
/// secret differ, is the exception: its epochs begin anew.
///
/// The agent follows the routing of the node's own workflow set. An instance follows that of the
/// set which its assignment names. When the assignment callback has returned from an assignment
/// that names another set, the view's routing is empty (epoch 0) until the table of that set comes,
/// and the agent takes no more tables of the set before.
///
/// From the answers to its reports the agent estimates how far this machine's wall clock is from
/// that of the NodeManager that leads. It tells the NodeManager with every report, and shows it as
/// the metric onepiece_clock_skew_seconds. Nothing else depends on it.
///
/// A node with an identity tells its door who may call and how often, and renews its certificate in
/// time (identity_upkeep.h).
///
/// Ownership: Owns its threads: one reports, one watches the routing, for instances one watches the
/// assignment, and with a door one keeps the identity fresh.
///
/// Threading: Thread-safe. Callbacks run on the agent's threads, one at a time for each kind, and
/// never after Stop() has returned. They must not call Stop(). A callback delays the next update of
/// its kind, and Stop(). An instance's assignment callback may take a minute, because it finishes
/// the work of the workflow set that it leaves; it ends when the instance leaves.
///
/// Blocking: Start never blocks. WaitReady blocks until its limit. Stop blocks until the callbacks
/// have returned, and then for about one second at most (the goodbye).
class NodeAgent {
 public:
  using RoutingCallback = std::function<void(const std::shared_ptr<const Routing>&)>;
  using AssignmentCallback = std::function<void(const v1::Assignment&)>;
  using CapacityCallback = std::function<void(const v1::Capacity&)>;
  using LimitsCallback = std::function<void(const v1::LimitsConfig&)>;
  using LoadSource = std::function<v1::NodeLoad()>;
  using UseSource = std::function<std::vector<v1::TenantUse>()>;

  /// Borrows `view` and `clock`, which outlive the agent.
  NodeAgent(NodeAgentOptions options, ClusterView& view, base::Clock& clock = base::SystemClock());
  /// Stop().
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  /// `callback` is called after every change of the routing table, in epoch order. REQUIRES: before
  /// Start().
  void OnRouting(RoutingCallback callback);
  /// `callback` is called with the assignment now and after every change. The same assignment may
  /// come twice. REQUIRES: before Start().
  void OnAssignment(AssignmentCallback callback);
  /// `callback` is called with the set's capacity when the answer to a report brings it. REQUIRES:
  /// before Start().
  void OnCapacity(CapacityCallback callback);
  /// `callback` is called with the cluster's limits for this node's role when the answer to a
  /// report brings other ones than before. It is not called while they are all 0 from the start.
  /// REQUIRES: before Start().
  void OnLimits(LimitsCallback callback);
  /// The agent asks `source` before every report. REQUIRES: before Start().
  void SetLoadSource(LoadSource source);
  /// The agent asks `source` for what tenants have used since it asked last, and reports that until
  /// an answer confirms it. It asks again only then, so the source adds up meanwhile. When an
  /// answer was lost, the NodeManager hears of the same uses twice. REQUIRES: before Start().
  void SetUseSource(UseSource source);

  /// Starts registering. The node is STARTING until SetState says otherwise.
  void Start();
  /// Waits until the node is registered and has a routing table.
  ///
  /// Errors: DEADLINE_EXCEEDED with the last failure in its message, CANCELLED after Stop().
  absl::Status WaitReady(base::Duration limit);
  /// Sets what the next reports say, and reports immediately. Callable before Start().
  void SetState(NodeStatus status);
  /// Returns the wall clock here minus that of the NodeManager, or nullopt before an answer came
  /// quickly enough to tell. The error is at most half of the round trip, 250 ms.
  [[nodiscard]] std::optional<base::Duration> clock_skew() const;
  /// Ends the threads and deregisters the node, best effort. Idempotent.
  void Stop();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::node
