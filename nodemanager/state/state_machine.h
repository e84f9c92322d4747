// The NodeManager's replicated state machine (DESIGN §8): a pure function of the commands applied
// to it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "nodemanager/state/remembered_requests.h"
#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Of the commands' encoding and meaning. A program applies all versions up to its own; the leader
/// proposes only what every voter can apply, so it grows with any change that an older program
/// would not understand alike. 2: plans.
inline constexpr std::uint32_t kCommandVersion = 2;
/// The first version that knows this kind of command.
std::uint32_t VersionOf(const v1::Command& command);

/// Nodes, workflows, assignments, routing epoch, plans and audit log.
///
/// Threading   Thread-compatible: one writer, or many readers (a Log sees to it).
/// Blocking    Never; no clock, no threads, no I/O, no randomness: time and random bytes come in
///             commands.
/// Invariants  Replaying the same commands gives the same Serialize() bytes. revision and epoch
///             never fall.
/// Bounds      kMaxNodes, kMaxWorkflows, kMaxDeletions, kMaxAudit, kMaxBytes, kMaxPlans of
///             kMaxPlanBytes, kMaxPoolLimits, RememberedRequests: together below what a snapshot
///             may have on its way (kMaxSnapshotBytes).
class StateMachine {
 public:
  static constexpr std::size_t kMaxNodes = 4096;
  static constexpr std::size_t kMaxWorkflows = 1024;
  static constexpr std::size_t kMaxDeletions = 256;
  static constexpr std::size_t kMaxAudit = 1000;
  /// The oldest of those that have ended is forgotten.
  static constexpr std::size_t kMaxPlans = 200;
  static constexpr std::size_t kMaxRunningPlans = 16;
  static constexpr std::size_t kMaxPoolLimits = 1024;
  /// Of nodes and workflows, serialised. More: registrations and workflows are refused,
  /// RESOURCE_EXHAUSTED (STATE_FULL); what known nodes report and are assigned may take kMaxGrowth
  /// beyond it.
  static constexpr std::size_t kMaxBytes = 40 << 20, kMaxGrowth = 8 << 20;

  /// Applies the command at `index` of the log, which was proposed as of `version`: one of before
  /// version 2 means what it did to the programs of then, until the first one of version 2. A
  /// refused command changes nothing but applied_index. REQUIRES: index == applied_index() + 1.
  v1::CommandResult Apply(std::uint64_t index, const v1::Command& command,
                          std::uint32_t version = kCommandVersion);

  /// The state as bytes: equal states give equal bytes.
  [[nodiscard]] std::string Serialize() const;
  /// Replaces the state with a serialised one. Errors, the state is unchanged then: DATA_LOSS
  /// (BAD_SNAPSHOT), FAILED_PRECONDITION (NEWER_VERSION).
  absl::Status Restore(std::string_view bytes);

  /// Nodes, workflows, plans (without the predictions of those that have ended), limits and hold
  /// alone: enough to see what plans could do, and cheap. Not for Apply() and Serialize().
  [[nodiscard]] StateMachine CopyForPlans() const;

  [[nodiscard]] std::uint64_t applied_index() const { return applied_index_; }
  [[nodiscard]] std::uint64_t revision() const { return revision_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  /// Changes after a revision below this one can only be told as a snapshot.
  [[nodiscard]] std::uint64_t history_floor() const { return history_floor_; }
  /// Empty until the cluster is initialised.
  [[nodiscard]] const std::string& cluster_id() const { return cluster_id_; }
  [[nodiscard]] const std::string& cluster_secret() const { return cluster_secret_; }
  [[nodiscard]] const std::map<std::string, v1::NodeRecord>& nodes() const { return nodes_; }
  [[nodiscard]] const std::map<std::string, v1::WorkflowRecord>& workflows() const {
    return workflows_;
  }
  [[nodiscard]] const std::deque<v1::WorkflowDeletion>& deletions() const { return deletions_; }
  [[nodiscard]] const std::deque<v1::AuditEntry>& audit() const { return audit_; }
  /// Oldest first.
  [[nodiscard]] const std::deque<v1::Plan>& plans() const { return plans_; }
  /// For Plan::base_revision; 0 before the first command of version 2.
  [[nodiscard]] std::uint64_t plan_revision() const { return plan_revision_; }
  /// As it was set: it may have run out since.
  [[nodiscard]] const v1::Hold& hold() const { return hold_; }
  /// By workflow set and pool.
  [[nodiscard]] const std::map<std::pair<std::string, std::string>, v1::PoolLimits>& pool_limits()
      const {
    return pool_limits_;
  }

  /// True when `record`, of this state, says already what `change` does.
  [[nodiscard]] bool IsKnown(const v1::NodeRecord& record, const v1::SetNodeState& change) const;

  /// The routing table of one workflow set. An instance is in the routes of those applications of
  /// its present assignment that it has said it serves; when an assignment changes but the stage
  /// stays, it remains in those of the applications whose model stays. One that is draining is in
  /// none.
  [[nodiscard]] v1::RoutingTable Routing(const std::string& workflow_set) const;

 private:
  absl::Status Change(const v1::Command& command);
  absl::Status Initialize(const v1::InitializeCluster& change);
  absl::Status RegisterNode(const v1::Node& node, std::int64_t time);
  absl::Status EndNode(const v1::EndNode& change, std::int64_t time);
  absl::Status SetNodeState(const v1::SetNodeState& change);
  absl::Status Assign(const v1::Assign& change, std::int64_t time);
  absl::Status ApplyWorkflow(const v1::Workflow& workflow, std::int64_t time);
  absl::Status DeleteWorkflow(const std::string& app_id, std::int64_t time);
  absl::Status StartPlan(const v1::Plan& wanted, std::int64_t time);
  absl::Status AdvanceMove(const v1::AdvanceMove& change, std::int64_t time);
  absl::Status DecidePlan(const v1::DecidePlan& change, std::int64_t time);
  absl::Status SetHold(const v1::Hold& change, std::int64_t time);
  absl::Status SetPoolLimits(const v1::SetPoolLimits& change, std::int64_t time);
  v1::Plan* MutablePlan(const std::string& plan_id);  // Null: unknown.
  [[nodiscard]] absl::Status CheckMovable(const v1::Move& move) const;
  // The one place where a move's phase changes its node.
  void EnterPhase(v1::Move& move, v1::Move::Phase phase, std::int64_t time,
                  const std::string& detail);
  void Settle(v1::Plan& plan, std::int64_t time);  // After a change of its moves' phases.
  static void Place(v1::NodeRecord& record, const v1::Placement& placement);
  void PlanInputChanged() { plan_revision_ += version_ >= 2 ? 1 : 0; }
  absl::Status MakeRoomForNode();
  [[nodiscard]] absl::Status CheckRoom(std::size_t before, std::size_t after,
                                       std::size_t limit) const;
  void Touch(v1::NodeRecord& record) { record.set_revision(++revision_); }
  void Audit(std::int64_t time, std::string_view action, std::string_view subject,
             std::string_view detail);
  [[nodiscard]] std::string RoutingFingerprint() const;

  std::uint64_t applied_index_ = 0, revision_ = 0, epoch_ = 0, history_floor_ = 0;
  std::uint64_t plan_revision_ = 0;
  std::uint32_t version_ = 1;  // The highest of the commands applied.
  std::string cluster_id_, cluster_secret_;
  std::map<std::string, v1::NodeRecord> nodes_;
  std::map<std::string, v1::WorkflowRecord> workflows_;
  std::deque<v1::WorkflowDeletion> deletions_;
  std::deque<v1::AuditEntry> audit_;
  std::deque<v1::Plan> plans_;
  v1::Hold hold_;
  std::map<std::pair<std::string, std::string>, v1::PoolLimits> pool_limits_;
  RememberedRequests requests_;
  std::size_t bytes_ = 0;  // Of nodes_ and workflows_, serialised.
};

/// True unless the node is dead.
inline bool IsAlive(const v1::Node& node) { return node.state() != v1::Node::DEAD; }

/// The workflow set that the node itself named; Node::workflow_set is where it works now.
const std::string& DescribedSet(const v1::NodeRecord& record);

/// Workflow set and pool (empty: idle) where the placement puts the node.
std::pair<std::string, std::string> PlaceOf(const v1::NodeRecord& record,
                                            const v1::Placement& placement);

/// The applications that messages may be sent to the instance for, of its present assignment.
google::protobuf::RepeatedPtrField<std::string> ServedApps(const v1::NodeRecord& record);

/// The result as a status: OK, or the code with its reason.
absl::Status ToStatus(const v1::CommandResult& result);

/// Serialises with map entries in order, so that equal messages give equal bytes.
std::string SerializeDeterministically(const google::protobuf::MessageLite& message);

}  // namespace onepiece::nodemanager
