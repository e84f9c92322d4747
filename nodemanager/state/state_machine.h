// The NodeManager's replicated state machine (docs/consensus.md, "The state"). Its state is a pure
// function of the commands that were applied to it.
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
#include "nodemanager/state/identity_records.h"
#include "nodemanager/state/remembered_requests.h"
#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// The version of the commands' encoding and meaning. It grows with any change that an older
/// program would not understand alike. A program applies all versions up to its own, and a leader
/// proposes only what every voter can apply. Version 2 brought plans. Version 3 brought an epoch
/// for each workflow set, generations, assignments that only what they depend on makes stale, moves
/// that go back alone, and nodes that are forgotten on demand. Version 4 brought the configuration.
/// Version 5 brought identities, and an audit log that names callers.
inline constexpr std::uint32_t kCommandVersion = 5;
/// The first version that knows this kind of command.
std::uint32_t VersionOf(const v1::Command& command);

/// Nodes, workflows, assignments, routing epoch, plans and audit log. Commands change them;
/// everybody else only reads.
///
/// Its parts are bounded by the constants below, by kMaxPlanBytes for each plan and by
/// RememberedRequests. Together they stay below what a snapshot may have on the network
/// (kMaxSnapshotBytes).
///
/// Threading: thread-compatible. A Log sees to it that there is one writer or many readers.
/// Blocking: never. There is no clock, no thread, no input or output, and no randomness in it:
/// times and random bytes come in commands.
/// Invariants: the same commands give the same Serialize() bytes. revision() and epoch() never
/// fall, and in a new generation (cluster/base/generation.h) they are greater than whatever the
/// earlier one can have reached.
class StateMachine {
 public:
  static constexpr std::size_t kMaxNodes = 4096;
  static constexpr std::size_t kMaxWorkflows = 1024;
  static constexpr std::size_t kMaxDeletions = 256;
  static constexpr std::size_t kMaxAudit = 1000;
  /// When there are more, the oldest plan that has ended is forgotten.
  static constexpr std::size_t kMaxPlans = 200;
  static constexpr std::size_t kMaxRunningPlans = 16;
  static constexpr std::size_t kMaxPoolLimits = 1024;
  /// The history of the configuration: revisions, and bytes of all the configurations in it. The
  /// oldest are dropped.
  static constexpr std::size_t kMaxConfigRevisions = 100, kMaxConfigHistoryBytes = 2 << 20;
  /// The serialised size of settings().
  static constexpr std::size_t kMaxSettingsBytes = 256 << 10;
  /// The serialised size of nodes and workflows. A registration or a workflow that would exceed
  /// kMaxBytes is refused, RESOURCE_EXHAUSTED (STATE_FULL). What known nodes report and are
  /// assigned may take kMaxGrowth more.
  static constexpr std::size_t kMaxBytes = 40 << 20, kMaxGrowth = 8 << 20;

  /// Applies the command at `index` of the log and returns what it did. A refused command changes
  /// only applied_index() and what is remembered of requests. `version` is the version under which
  /// the command was proposed. Until the first command of version 2 commands mean what they meant
  /// to programs of version 1.
  /// REQUIRES: index == applied_index() + 1.
  v1::CommandResult Apply(std::uint64_t index, const v1::Command& command,
                          std::uint32_t version = kCommandVersion);

  /// The highest version under which the command may be proposed in this state. It is the feature
  /// level, which stays where it is until somebody raises it: so an upgraded group can still go
  /// back to its old program. A group that begins is not bound by one (kAnyVersion).
  [[nodiscard]] std::uint32_t VersionLimit(const v1::Command& command) const;
  static constexpr std::uint32_t kAnyVersion = 0xffffffff;

  /// The state as bytes. Equal states give equal bytes.
  [[nodiscard]] std::string Serialize() const;
  /// Replaces the state with a serialised one. On an error the state is unchanged.
  /// Errors: DATA_LOSS (BAD_SNAPSHOT), FAILED_PRECONDITION (NEWER_VERSION).
  absl::Status Restore(std::string_view bytes);

  /// A cheap copy for computing what plans could do. It holds nodes, workflows, limits, the hold,
  /// and plans without the predictions of those that have ended. It must not be used for Apply() or
  /// Serialize().
  [[nodiscard]] StateMachine CopyForPlans() const;

  [[nodiscard]] std::uint64_t applied_index() const { return applied_index_; }
  [[nodiscard]] std::uint64_t revision() const { return revision_; }
  /// Grows with every change of any routing table or assignment.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  /// The epoch of the set's routing table: epoch() when that table, or an assignment in the set,
  /// changed last. Before version 3, and for a set in which nothing has changed since, it is
  /// epoch().
  [[nodiscard]] std::uint64_t EpochOf(const std::string& workflow_set) const;
  /// A watcher that knows the state of a revision below this one must take a snapshot. What has
  /// changed since can no longer be told one by one.
  [[nodiscard]] std::uint64_t history_floor() const { return history_floor_; }
  /// Empty until the cluster is initialised.
  [[nodiscard]] const std::string& cluster_id() const { return cluster_id_; }
  [[nodiscard]] const std::string& cluster_secret() const { return cluster_secret_; }
  /// What commands mean: the highest version of the commands that were applied.
  [[nodiscard]] std::uint32_t feature_level() const { return version_; }
  /// True when deletions() may lack a workflow that was deleted.
  [[nodiscard]] bool forgot_deletions() const {
    return version_ >= 3 ? deletions_forgotten_ : history_floor_ > 0;
  }
  /// A node that is not known must have a greater incarnation. Below, it may be one that was
  /// declared dead and forgotten since. Incarnations are times, so new processes have greater ones.
  [[nodiscard]] std::uint64_t forgotten_incarnation() const { return forgotten_incarnation_; }
  /// What kMaxBytes bounds.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::map<std::string, v1::NodeRecord>& nodes() const { return nodes_; }
  [[nodiscard]] const std::map<std::string, v1::WorkflowRecord>& workflows() const {
    return workflows_;
  }
  [[nodiscard]] const std::deque<v1::WorkflowDeletion>& deletions() const { return deletions_; }
  [[nodiscard]] const std::deque<v1::AuditEntry>& audit() const { return audit_; }
  /// Oldest first.
  [[nodiscard]] const std::deque<v1::Plan>& plans() const { return plans_; }
  /// What Plan::base_revision refers to. 0 before the first command of version 2.
  [[nodiscard]] std::uint64_t plan_revision() const { return plan_revision_; }
  /// The hold as it was set. It may have expired since.
  [[nodiscard]] const v1::Hold& hold() const { return hold_; }
  /// By workflow set and pool.
  [[nodiscard]] const std::map<std::pair<std::string, std::string>, v1::PoolLimits>& pool_limits()
      const {
    return pool_limits_;
  }

  /// The whole configuration, assembled. Workflows are without their names ("workflows/…"), which
  /// follow from their ids, and lists are sorted, except for alerts.
  [[nodiscard]] v1::ClusterConfig Config() const;
  /// The part of it that is not in workflows() and pool_limits(): elasticity, liveness, alerts and
  /// limits.
  [[nodiscard]] const v1::ClusterConfig& settings() const { return settings_; }
  /// 0 until somebody, or the seed, has set a configuration. Before that, workflows and limits
  /// change without a revision.
  [[nodiscard]] std::uint64_t config_revision() const {
    return config_revisions_.empty() ? 0 : config_revisions_.back().revision();
  }
  /// Oldest first. A revision whose configuration alone exceeds kMaxConfigHistoryBytes is without
  /// it. `changes` are not kept: they follow from two neighbours, and their text may differ between
  /// programs.
  [[nodiscard]] const std::deque<v1::ConfigRevision>& config_revisions() const {
    return config_revisions_;
  }
  /// Returns what Config() would be after the change. It checks only what depends on the state, and
  /// what the state could not bear.
  /// Errors: FAILED_PRECONDITION (FEATURE_LEVEL, BELOW_USE), ABORTED (STALE_REVISION),
  /// INVALID_ARGUMENT (BAD_CONFIG with metadata "field", TEXT_TOO_LONG), RESOURCE_EXHAUSTED
  /// (STATE_FULL, TOO_MANY_WORKFLOWS, TOO_MANY_LIMITS).
  [[nodiscard]] absl::StatusOr<v1::ClusterConfig> CheckConfig(const v1::SetConfig& change) const;

  /// Says why the state refuses `change` whatever room it has.
  /// Errors: NOT_FOUND (NODE_UNKNOWN), ABORTED (STALE_INCARNATION), INVALID_ARGUMENT
  /// (BAD_NODE_STATE).
  [[nodiscard]] absl::Status CheckChange(const v1::SetNodeState& change) const;
  /// True when `record`, which must be of this state, says already what `change` says.
  [[nodiscard]] bool IsKnown(const v1::NodeRecord& record, const v1::SetNodeState& change) const;

  /// Who is in the cluster. Empty before version 5.
  [[nodiscard]] const IdentityRecords& identity() const { return identity_; }
  /// True when a command with this request id was answered, and the answer is still known.
  [[nodiscard]] bool Remembers(const std::string& request_id) const {
    return requests_.Find(request_id).has_value();
  }

  /// The routing table of one workflow set. An instance is in the routes of those applications of
  /// its present assignment that it has said it serves. When its assignment changes but the stage
  /// stays, it remains in the routes of the applications whose model stays. An instance that is
  /// draining is in no route.
  [[nodiscard]] v1::RoutingTable Routing(const std::string& workflow_set) const;

 private:
  absl::Status Change(const v1::Command& command);
  absl::Status Initialize(const v1::InitializeCluster& change);
  absl::Status RegisterNode(const v1::Node& node, std::int64_t time);
  absl::Status EndNode(const v1::EndNode& change, std::int64_t time);
  absl::Status RemoveNode(const v1::RemoveNode& change, std::int64_t time);
  absl::Status RaiseFeatureLevel(const v1::RaiseFeatureLevel& change, std::int64_t time);
  absl::Status SetNodeState(const v1::SetNodeState& change);
  absl::Status SetNodeStates(const v1::SetNodeStates& changes);
  absl::Status Assign(const v1::Assign& change, std::int64_t time);
  [[nodiscard]] absl::Status CheckBase(const v1::Assign& change) const;
  absl::Status ApplyWorkflow(const v1::Command& command);
  absl::Status DeleteWorkflow(const v1::Command& command);
  absl::Status StartPlan(const v1::Plan& wanted, std::int64_t time);
  absl::Status AdvanceMove(const v1::AdvanceMove& change, std::int64_t time);
  absl::Status DecidePlan(const v1::DecidePlan& change, std::int64_t time);
  absl::Status SetHold(const v1::Hold& change, std::int64_t time);
  absl::Status SetPoolLimits(const v1::SetPoolLimits& change, std::int64_t time);
  absl::Status BeginGeneration(const v1::BeginGeneration& change, std::int64_t time);
  absl::Status SetConfig(const v1::SetConfig& change, std::int64_t time);
  absl::Status ChangeIdentity(const v1::Command& command);
  // Says in the audit log who made the command and how it was answered.
  void SignAudit(const v1::Command& command, const absl::Status& status);
  [[nodiscard]] absl::Status CheckConfigRoom(const v1::ClusterConfig& next) const;
  void TakeWorkflows(const v1::ClusterConfig& next);
  void TakePools(const v1::ClusterConfig& next);
  [[nodiscard]] absl::StatusOr<v1::ClusterConfig> CheckConfig(
      const v1::SetConfig& change, const v1::ClusterConfig& present) const;
  // Who changes a workflow, as the audit log tells it.
  [[nodiscard]] std::string AuthorOf(const v1::Command& command) const {
    return version_ < 4 ? "" : command.actor();
  }
  // For apply_workflow and delete_workflow. Where the command gives no reason, `what` is it.
  void NoteConfigOf(std::string_view what, const v1::Command& command);
  void NoteConfig(const std::string& actor, const std::string& reason, v1::ClusterConfig config,
                  std::int64_t time);
  void BoundConfigHistory();
  void PutWorkflow(v1::Workflow workflow);
  void EraseWorkflow(const std::string& app_id);
  v1::Plan* MutablePlan(const std::string& plan_id);  // Null when it is unknown.
  [[nodiscard]] absl::Status CheckMovable(const v1::Move& move) const;
  // Only here does a move's phase change the record of its node.
  void EnterPhase(v1::Move& move, v1::Move::Phase phase, std::int64_t time,
                  const std::string& detail);
  // Brings the plan's state up to date after its moves' phases have changed.
  void Settle(v1::Plan& plan, std::int64_t time);
  static void Place(v1::NodeRecord& record, const v1::Placement& placement);
  void PlanInputChanged() { plan_revision_ += version_ >= 2 ? 1 : 0; }
  void EnterVersion(std::uint32_t version);
  absl::Status MakeRoomForNode();
  void Forget(std::map<std::string, v1::NodeRecord>::iterator node);
  [[nodiscard]] absl::Status CheckRoom(std::size_t before, std::size_t after,
                                       std::size_t limit) const;
  void Touch(v1::NodeRecord& record) { record.set_revision(++revision_); }
  void Audit(std::int64_t time, std::string_view action, std::string_view subject,
             std::string_view detail);
  /// What the node adds to the routing table of its set. Empty for a dead node.
  [[nodiscard]] std::string RoutingPart(const v1::NodeRecord& record) const;
  // Counts the epochs of the sets that a command has changed.
  void CountEpochs(std::uint64_t epoch_before);

  // A scope in which `record` of nodes_ may change. At its end the size of the state is right
  // again, and the sets whose routing tables look different are noted.
  class NodeChange;
  struct ChangedSets {
    bool all = false;
    std::set<std::string> names;
  };

  std::uint64_t applied_index_ = 0, revision_ = 0, epoch_ = 0, history_floor_ = 0;
  std::uint64_t plan_revision_ = 0;
  std::uint64_t forgotten_incarnation_ = 0;
  bool deletions_forgotten_ = false;
  std::uint32_t version_ = 1;  // The highest version of the commands that were applied.
  std::string cluster_id_, cluster_secret_;
  std::map<std::string, v1::NodeRecord> nodes_;
  std::map<std::string, v1::WorkflowRecord> workflows_;
  std::deque<v1::WorkflowDeletion> deletions_;
  std::deque<v1::AuditEntry> audit_;
  std::deque<v1::Plan> plans_;
  v1::Hold hold_;
  std::map<std::pair<std::string, std::string>, v1::PoolLimits> pool_limits_;
  std::map<std::string, std::uint64_t> set_epochs_;
  v1::ClusterConfig settings_;
  std::deque<v1::ConfigRevision> config_revisions_;
  IdentityRecords identity_;
  RememberedRequests requests_;
  ChangedSets changed_sets_;              // By the command that is being applied.
  std::size_t audited_ = 0;               // Entries that this command has added to audit_.
  std::size_t bytes_ = 0;                 // The serialised size of nodes_ and workflows_.
  std::size_t config_history_bytes_ = 0;  // That of the configurations in config_revisions_.
};

/// True unless the node is dead.
inline bool IsAlive(const v1::Node& node) { return node.state() != v1::Node::DEAD; }

/// The workflow set that the node itself named. Node::workflow_set is the set in which it works
/// now.
const std::string& DescribedSet(const v1::NodeRecord& record);

/// The workflow set and the pool where the placement puts the node. An empty pool means idle.
std::pair<std::string, std::string> PlaceOf(const v1::NodeRecord& record,
                                            const v1::Placement& placement);

/// The applications of its present assignment for which messages may be sent to the instance.
google::protobuf::RepeatedPtrField<std::string> ServedApps(const v1::NodeRecord& record);

/// The result as a status: OK, or the code with its reason and message.
absl::Status ToStatus(const v1::CommandResult& result);

}  // namespace onepiece::nodemanager
