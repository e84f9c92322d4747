// A node's membership: registers it with the NodeManager, reports for it and keeps its view of the
// cluster fresh.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/node/cluster_view.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::node {

struct NodeAgentOptions {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string node_id;
  std::vector<std::string> nodemanagers;  ///< host:port of replicas; the others are learned.
  std::string address;                    ///< host:port where peers reach this node.
  std::string metrics_address;
  std::string workflow_set;
  std::string pinned_stage;                               ///< Instances only; empty: any.
  base::Duration call_timeout = std::chrono::seconds(2);  ///< Of one replica; shorter at first.
};

/// What a node's reports say of it.
struct NodeStatus {
  v1::Node::State state = v1::Node::STARTING;  ///< STARTING or READY.
  std::string detail;                          ///< Tells people why.
  // Instances only:
  std::uint64_t assignment_epoch = 0;    ///< Of the assignment that it serves.
  std::vector<std::string> served_apps;  ///< Applications that it can serve; none named: all.
  bool drained = false;      ///< That assignment is draining, and nothing of it is left.
  bool load_failed = false;  ///< A model could not be loaded; `detail` says why.
};

/// Keeps one node registered, and its ClusterView up to date. Timeouts are multiplied by
/// $ONEPIECE_TIME_SCALE.
///
/// While the NodeManager is away, or its replicas choose a leader, everything stays as it was: the
/// last routing, the last assignment and the incarnation are kept, and the agent goes on trying
/// (rpc/replicas.h). When the NodeManager forgot the node, it registers again with the same
/// incarnation; when it declared the incarnation dead, with a greater one (so the view's
/// incarnation may grow during the life of a process). An incarnation is the Unix time in
/// nanoseconds when it began, so that it also grows from start to start. A routing table is never
/// older than the one before, except that of another cluster (its id or secret differ), whose
/// epochs begin anew.
///
/// The routing is that of the node's own workflow set, for an instance that of the set which its
/// assignment names. Once the assignment callback has returned from one that names another set,
/// the view's routing is empty (epoch 0) until that set's table comes, and no table of the set
/// before is taken any more.
///
/// Ownership: Owns its threads (report; routing watch; for instances, assignment watch).
/// Threading: Thread-safe. Callbacks run on the agent's threads, one at a time for each kind, never
/// after Stop() returned; they must not call Stop(). They delay the next update of their kind, and
/// Stop(): an instance's assignment callback may take a minute (it finishes what it has of a
/// workflow set that it leaves), and ends when the instance leaves.
/// Blocking: Start never blocks. WaitReady until its deadline. Stop until callbacks have returned,
/// and then at most about one second (the goodbye).
class NodeAgent {
 public:
  using RoutingCallback = std::function<void(const std::shared_ptr<const Routing>&)>;
  using AssignmentCallback = std::function<void(const v1::Assignment&)>;
  using CapacityCallback = std::function<void(const v1::Capacity&)>;
  using LoadSource = std::function<v1::NodeLoad()>;

  /// Borrows `view` and `clock`, which outlive the agent.
  NodeAgent(NodeAgentOptions options, ClusterView& view, base::Clock& clock = base::SystemClock());
  /// Stop().
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  /// Called after every change of the routing table, in epoch order. REQUIRES: before Start().
  void OnRouting(RoutingCallback callback);
  /// Called with the assignment now and after every change; may repeat the same one. REQUIRES:
  /// before Start().
  void OnAssignment(AssignmentCallback callback);
  /// Called with what the answer to a report says of the set's capacity. REQUIRES: before Start().
  void OnCapacity(CapacityCallback callback);
  /// Asked before every report. REQUIRES: before Start().
  void SetLoadSource(LoadSource source);

  /// Starts registering. The node is STARTING until SetState says otherwise.
  void Start();
  /// Waits until the node is registered and has a routing table.
  /// Errors: DEADLINE_EXCEEDED with the last failure in its message, CANCELLED after Stop().
  absl::Status WaitReady(base::Duration limit);
  /// What the next reports say; reported at once. Callable before Start().
  void SetState(NodeStatus status);
  /// Ends the threads and deregisters the node, best effort. Idempotent.
  void Stop();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::node
