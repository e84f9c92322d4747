#include "nodemanager/state/state_machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/generation.h"
#include "google/protobuf/wire_format_lite.h"
#include "nodemanager/state/node_change.h"
#include "nodemanager/state/plan_state.h"
#include "nodemanager/state/resizing.h"

namespace onepiece::nodemanager {
namespace {

// How far revisions leap into a new generation: further than a lost future can have counted.
constexpr std::uint64_t kGenerationLeap = std::uint64_t{1} << 32;

// What differs between two attempts of one request, besides the time: the connection, and the
// certificate, which is signed anew for each attempt. Only programs of version 5 know these fields.
bool TellsItsAttempt(const v1::Command& command) {
  return !command.caller().empty() || !command.caller_address().empty() ||
         command.has_issue_certificate();
}

v1::Command WithoutAttempt(v1::Command command) {
  command.clear_caller();
  command.clear_caller_address();
  if (command.has_issue_certificate()) {
    v1::IssuedCertificate& made = *command.mutable_issue_certificate()->mutable_certificate();
    made.clear_serial();
    made.clear_not_before_unix_ms();
    made.clear_not_after_unix_ms();
  }
  return command;
}

// Tells whether two commands under one request id ask for the same. A retry carries the same change
// at another time. Id and time are the first fields of the bytes, so nothing is copied to leave
// them out.
std::uint32_t Fingerprint(const v1::Command& told) {
  v1::Command stripped;
  if (TellsItsAttempt(told)) stripped = WithoutAttempt(told);
  const v1::Command& command = TellsItsAttempt(told) ? stripped : told;
  using Wire = google::protobuf::internal::WireFormatLite;
  const std::string bytes = base::CanonicalBytes(command);
  std::size_t skipped = 0;
  if (!command.request_id().empty()) skipped += 1 + Wire::StringSize(command.request_id());
  if (command.time_unix_ms() != 0) skipped += 1 + Wire::Int64Size(command.time_unix_ms());
  return base::Crc32c(std::as_bytes(std::span(bytes)).subspan(skipped));
}

absl::Status StaleIncarnation(const std::string& node_id, const v1::NodeRecord& known) {
  return base::MakeError(
      absl::StatusCode::kAborted, "STALE_INCARNATION",
      absl::StrCat("node '", node_id, "' is known with incarnation ", known.node().incarnation(),
                   IsAlive(known.node()) ? "" : ", which is dead"),
      {{"node_id", node_id}});
}

absl::Status NodeUnknown(const std::string& node_id) {
  return base::MakeError(absl::StatusCode::kNotFound, "NODE_UNKNOWN",
                         absl::StrCat("node '", node_id, "' is not registered"),
                         {{"node_id", node_id}});
}

using Names = google::protobuf::RepeatedPtrField<std::string>;

bool Contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The model of the application's stage. Older assignments name one model for all applications, in
// the stage.
const std::string& ModelOf(const v1::Assignment& assignment, int app) {
  return app < assignment.models_size() ? assignment.models(app) : assignment.stage().model();
}

// True when an instance with assignment `a` can take `b` while it goes on serving: it loads and
// unloads models, and serves the other applications meanwhile. `version` is that of the state.
bool SameStage(v1::StageSpec a, v1::StageSpec b, std::uint32_t version) {
  for (v1::StageSpec* spec : {&a, &b}) {
    spec->clear_model();
    spec->clear_pool();
    // These fields matter to who places instances and admits jobs, not to the instance. Changing
    // one must not take the instance out of the routes until it has reported again.
    spec->clear_min_instances();
    spec->clear_max_instances();
    spec->clear_cost();
    spec->clear_after();
    if (version < 3) continue;
    spec->clear_device();
    spec->clear_device_memory_bytes();
    spec->clear_cost_terms();
  }
  return base::CanonicalBytes(a) == base::CanonicalBytes(b);
}

// The applications that the instance serves now and that the next assignment leaves as they are.
Names KeptApps(const v1::NodeRecord& record, const v1::Assignment& next, std::uint32_t version) {
  const v1::Assignment& now = record.node().assignment();
  const Names served = ServedApps(record);
  Names kept;
  if (now.workflow_set() != next.workflow_set() || !SameStage(now.stage(), next.stage(), version))
    return kept;
  for (int i = 0; i < now.app_ids_size(); ++i) {
    for (int j = 0; j < next.app_ids_size(); ++j) {
      if (next.app_ids(j) == now.app_ids(i) && ModelOf(now, i) == ModelOf(next, j) &&
          Contains(served, now.app_ids(i)))
        *kept.Add() = now.app_ids(i);
    }
  }
  return kept;
}

template <typename T>
void PopToSize(std::deque<T>& queue, std::size_t size) {
  while (queue.size() > size) queue.pop_front();
}

// What programs of version 2 neither send nor compare.
bool SameEnvironment(const v1::Node& a, const v1::Node& b) {
  const auto environment = [](const v1::Node& node) {
    v1::Node copy;
    copy.set_version(node.version());
    copy.set_build(node.build());
    copy.set_zone(node.zone());
    copy.set_host(node.host());
    *copy.mutable_labels() = node.labels();
    *copy.mutable_devices() = node.devices();
    return base::CanonicalBytes(copy);
  };
  return environment(a) == environment(b);
}

// Compares what a node says of itself, and ignores what the NodeManager decides about it.
bool SameDescription(const v1::Node& a, const v1::NodeRecord& known, std::uint32_t version) {
  const v1::Node& b = known.node();
  const bool same = a.role() == b.role() && a.address() == b.address() &&
                    a.metrics_address() == b.metrics_address() && a.pid() == b.pid() &&
                    a.workflow_set() == DescribedSet(known) && a.pinned_stage() == b.pinned_stage();
  return same && (version < 3 || SameEnvironment(a, b));
}

// This and HasFailedToLoad() believe only reports about the present assignment. A report about an
// earlier one says nothing about it.
bool IsDrained(const v1::Node& node, const v1::SetNodeState& change) {
  return change.drained() && node.assignment().draining() &&
         change.assignment_epoch() == node.assignment().epoch();
}

bool HasFailedToLoad(const v1::Node& node, const v1::SetNodeState& change) {
  return change.load_failed() && node.assignment().has_stage() &&
         change.assignment_epoch() == node.assignment().epoch();
}

// Before version 4 nobody looks at who changes a workflow.
absl::Status CheckAuthor(const v1::Command& command, std::uint32_t version) {
  if (version < 4) return absl::OkStatus();
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", command.actor()));
  return CheckPlanText("reason", command.reason());
}

// The prediction is most of a plan's size.
v1::Plan WithoutPrediction(const v1::Plan& plan) {
  v1::Plan copy;
  copy.set_plan_id(plan.plan_id());
  copy.set_state(plan.state());
  copy.set_base_revision(plan.base_revision());
  *copy.mutable_moves() = plan.moves();
  copy.set_actor(plan.actor());
  copy.set_reason(plan.reason());
  copy.set_create_unix_ms(plan.create_unix_ms());
  copy.set_end_unix_ms(plan.end_unix_ms());
  copy.set_confirm_by_unix_ms(plan.confirm_by_unix_ms());
  copy.set_confirm_within_ms(plan.confirm_within_ms());
  copy.set_undo_of(plan.undo_of());
  copy.set_undone_by(plan.undone_by());
  return copy;
}

}  // namespace

google::protobuf::RepeatedPtrField<std::string> ServedApps(const v1::NodeRecord& record) {
  const v1::Assignment& assignment = record.node().assignment();
  if (record.node().role() != v1::INSTANCE || record.node().state() != v1::Node::READY ||
      !assignment.has_stage() || assignment.draining())
    return {};
  // A node that names no application serves all of them, if it speaks of the present assignment.
  const bool all = record.served_app_ids().empty() && record.served_epoch() == assignment.epoch();
  return all ? assignment.app_ids() : record.served_app_ids();
}

std::uint32_t VersionOf(const v1::Command& command) {
  switch (command.change_case()) {
    case v1::Command::kStartPlan:
    case v1::Command::kAdvanceMove:
    case v1::Command::kDecidePlan:
    case v1::Command::kSetHold:
      return 2;
    case v1::Command::kSetPoolLimits: {
      const v1::PoolLimits& limits = command.set_pool_limits().limits();
      return limits.device().empty() && limits.device_memory_bytes() == 0 ? 2 : 4;
    }
    case v1::Command::kRemoveNode:
    case v1::Command::kRaiseFeatureLevel:
    case v1::Command::kBeginGeneration:
    case v1::Command::kSetNodeStates:
      return 3;
    case v1::Command::kSetConfig:
      return 4;
    case v1::Command::kSetAuthorities:
    case v1::Command::kCreateToken:
    case v1::Command::kEndToken:
    case v1::Command::kIssueCertificate:
    case v1::Command::kRevokeCertificate:
    case v1::Command::kSetTenant:
    case v1::Command::kAddUses:
      return 5;
    default:
      return 1;
  }
}

absl::Status ToStatus(const v1::CommandResult& result) {
  if (result.code() == 0) return absl::OkStatus();
  return base::MakeError(static_cast<absl::StatusCode>(result.code()), result.reason(),
                         result.message());
}

v1::CommandResult StateMachine::Apply(std::uint64_t index, const v1::Command& command,
                                      std::uint32_t version) {
  ONEPIECE_CHECK(index == applied_index_ + 1);
  applied_index_ = index;
  changed_sets_ = {};
  // The meaning of commands switches at one place in the log, the first command of a version, and
  // so at the same command on every replica.
  EnterVersion(version);
  std::uint32_t fingerprint = 0;
  if (!command.request_id().empty()) {
    fingerprint = Fingerprint(command);
    if (const auto seen = requests_.Find(command.request_id()); seen) {
      if (seen->fingerprint() == fingerprint) return seen->result();
      v1::CommandResult reused;
      reused.set_code(static_cast<int>(absl::StatusCode::kAlreadyExists));
      reused.set_reason("REQUEST_ID_REUSED");
      reused.set_message("this request_id was used for another request");
      reused.set_revision(revision_);
      reused.set_epoch(epoch_);
      return reused;
    }
  }
  const std::uint64_t epoch_before = epoch_;
  const bool entered = changed_sets_.all;
  audited_ = 0;
  const absl::Status status = Change(command);
  SignAudit(command, status);
  if (!status.ok()) changed_sets_ = {.all = entered, .names = {}};
  CountEpochs(epoch_before);
  v1::CommandResult result;
  result.set_revision(revision_);
  result.set_epoch(epoch_);
  if (!status.ok()) {
    result.set_code(static_cast<int>(status.code()));
    result.set_reason(base::GetReason(status).reason);
    result.set_message(base::Message(status));
  }
  // Refusals are remembered too, with their message: the texts of this folder's errors are a part
  // of the state and of its hash.
  if (!command.request_id().empty()) {
    v1::RememberedRequest request;
    request.set_request_id(command.request_id());
    request.set_fingerprint(fingerprint);
    *request.mutable_result() = result;
    request.set_time_unix_ms(command.time_unix_ms());
    requests_.Add(request);
  }
  return result;
}

absl::Status StateMachine::Change(const v1::Command& command) {
  const std::int64_t time = command.time_unix_ms();
  switch (command.change_case()) {
    case v1::Command::kInitialize:
      return Initialize(command.initialize());
    case v1::Command::kRegisterNode:
      return RegisterNode(command.register_node(), time);
    case v1::Command::kEndNode:
      return EndNode(command.end_node(), time);
    case v1::Command::kSetNodeState:
      return SetNodeState(command.set_node_state());
    case v1::Command::kAssign:
      return Assign(command.assign(), time);
    case v1::Command::kApplyWorkflow:
      return ApplyWorkflow(command);
    case v1::Command::kDeleteWorkflow:
      return DeleteWorkflow(command);
    case v1::Command::kStartPlan:
      return StartPlan(command.start_plan().plan(), time);
    case v1::Command::kAdvanceMove:
      return AdvanceMove(command.advance_move(), time);
    case v1::Command::kDecidePlan:
      return DecidePlan(command.decide_plan(), time);
    case v1::Command::kSetHold:
      return SetHold(command.set_hold(), time);
    case v1::Command::kSetPoolLimits:
      return SetPoolLimits(command.set_pool_limits(), time);
    case v1::Command::kSetNodeStates:
      return SetNodeStates(command.set_node_states());
    case v1::Command::kRemoveNode:
      return RemoveNode(command.remove_node(), time);
    case v1::Command::kRaiseFeatureLevel:
      return RaiseFeatureLevel(command.raise_feature_level(), time);
    case v1::Command::kBeginGeneration:
      return BeginGeneration(command.begin_generation(), time);
    case v1::Command::kSetConfig:
      return SetConfig(command.set_config(), time);
    case v1::Command::kSetAuthorities:
    case v1::Command::kCreateToken:
    case v1::Command::kEndToken:
    case v1::Command::kIssueCertificate:
    case v1::Command::kRevokeCertificate:
    case v1::Command::kSetTenant:
    case v1::Command::kAddUses:
      if (version_ >= 5) return ChangeIdentity(command);
      break;
    case v1::Command::CHANGE_NOT_SET:
      break;
  }
  return base::MakeError(absl::StatusCode::kUnimplemented, "COMMAND_UNKNOWN",
                         "a newer version made this command; this one does not know it");
}

absl::Status StateMachine::Initialize(const v1::InitializeCluster& change) {
  if (!cluster_id_.empty()) return absl::OkStatus();
  cluster_id_ = change.cluster_id();
  cluster_secret_ = change.cluster_secret();
  ++revision_;
  return absl::OkStatus();
}

absl::Status StateMachine::RegisterNode(const v1::Node& node, std::int64_t time) {
  const auto known = nodes_.find(node.node_id());
  if (known != nodes_.end()) {
    const v1::Node& old = known->second.node();
    // An incarnation that was declared dead stays dead, because others may have sent its work
    // elsewhere since. The node must come back under a new incarnation.
    const bool ended = node.incarnation() == old.incarnation() && !IsAlive(old);
    if (node.incarnation() < old.incarnation() || ended)
      return StaleIncarnation(node.node_id(), known->second);
    if (node.incarnation() == old.incarnation() && IsAlive(old) &&
        SameDescription(node, known->second, version_)) {
      return absl::OkStatus();
    }
  } else if (node.incarnation() <= forgotten_incarnation_) {
    return base::MakeError(
        absl::StatusCode::kAborted, "STALE_INCARNATION",
        absl::StrCat("nodes with incarnations up to ", forgotten_incarnation_,
                     " were forgotten, and node '", node.node_id(), "' may be one of them"),
        {{"node_id", node.node_id()}});
  }
  ONEPIECE_RETURN_IF_ERROR(CheckRoom(known == nodes_.end() ? 0 : known->second.ByteSizeLong(),
                                     node.ByteSizeLong(), kMaxBytes));
  if (known == nodes_.end()) ONEPIECE_RETURN_IF_ERROR(MakeRoomForNode());
  v1::NodeRecord& record = nodes_[node.node_id()];
  const NodeChange node_change(*this, record);
  // The placement survives a new incarnation: a node that dies in the middle of a move comes back
  // at its place.
  const bool placed = record.node().has_placement();
  const v1::Placement placement = record.node().placement();
  // Clear() drops `described_set` too. Place() then takes the set that the node names now for the
  // described one.
  record.Clear();
  v1::Node& made = *record.mutable_node();
  made = node;
  made.clear_placement();
  made.clear_activity();
  if (placed) Place(record, placement);
  made.set_name("nodes/" + node.node_id());
  made.set_state(v1::Node::STARTING);
  made.clear_assignment();
  made.clear_last_report_time();
  made.clear_load();
  Touch(record);
  PlanInputChanged();
  Audit(time, "register_node", node.node_id(),
        absl::StrCat(v1::Role_Name(node.role()), " incarnation ", node.incarnation()));
  return absl::OkStatus();
}

// Forgets the dead node whose record changed longest ago.
absl::Status StateMachine::MakeRoomForNode() {
  if (nodes_.size() < kMaxNodes) return absl::OkStatus();
  auto oldest = nodes_.end();
  for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
    if (IsAlive(it->second.node())) continue;
    if (oldest == nodes_.end() || it->second.revision() < oldest->second.revision()) oldest = it;
  }
  if (oldest == nodes_.end()) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_NODES",
                           absl::StrCat("the cluster has ", kMaxNodes, " live nodes already"));
  }
  Forget(oldest);
  return absl::OkStatus();
}

void StateMachine::Forget(std::map<std::string, v1::NodeRecord>::iterator node) {
  // There is no event that tells watchers of a forgotten node, so all of them must take a snapshot.
  history_floor_ = ++revision_;
  // The incarnation was declared dead, and its work is done elsewhere. Nothing else keeps it from
  // coming back once its record is gone.
  if (version_ >= 3) {
    forgotten_incarnation_ = std::max(forgotten_incarnation_, node->second.node().incarnation());
  }
  bytes_ -= node->second.ByteSizeLong();
  nodes_.erase(node);
}

// A record that does not grow always has room, also when the state is full.
absl::Status StateMachine::CheckRoom(std::size_t before, std::size_t after,
                                     std::size_t limit) const {
  if (after <= before || bytes_ - before + after <= limit) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kResourceExhausted, "STATE_FULL",
      absl::StrCat("nodes and workflows take ", bytes_, " bytes and would take ",
                   bytes_ - before + after, ", at most ", limit, ": delete workflows"));
}

absl::Status StateMachine::EndNode(const v1::EndNode& change, std::int64_t time) {
  const auto known = nodes_.find(change.node_id());
  if (known == nodes_.end()) return NodeUnknown(change.node_id());
  v1::NodeRecord& record = known->second;
  if (record.node().incarnation() != change.incarnation())
    return StaleIncarnation(change.node_id(), record);
  if (!IsAlive(record.node())) return absl::OkStatus();
  const NodeChange node_change(*this, record);
  record.mutable_node()->set_state(v1::Node::DEAD);
  record.mutable_node()->set_detail(change.detail());
  record.mutable_node()->clear_assignment();
  record.clear_served_epoch();
  record.clear_served_app_ids();
  record.clear_drained();
  record.clear_load_failed();
  Touch(record);
  PlanInputChanged();
  Audit(time, "end_node", change.node_id(), change.detail());
  return absl::OkStatus();
}

absl::Status StateMachine::CheckChange(const v1::SetNodeState& change) const {
  const auto known = nodes_.find(change.node_id());
  if (known == nodes_.end()) return NodeUnknown(change.node_id());
  const v1::Node& node = known->second.node();
  if (node.incarnation() != change.incarnation() || !IsAlive(node))
    return StaleIncarnation(change.node_id(), known->second);
  if (change.state() == v1::Node::STARTING || change.state() == v1::Node::READY)
    return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_NODE_STATE",
                         "a node is STARTING or READY", {{"field", "state"}});
}

bool StateMachine::IsKnown(const v1::NodeRecord& record, const v1::SetNodeState& change) const {
  const v1::Node& node = record.node();
  const bool served_here = change.assignment_epoch() == node.assignment().epoch();
  return node.state() == change.state() && node.detail() == change.detail() &&
         record.served_epoch() == change.assignment_epoch() &&
         record.drained() == (version_ >= 2 && IsDrained(node, change)) &&
         record.load_failed() == (version_ >= 2 && HasFailedToLoad(node, change)) &&
         (!served_here || change.state() != v1::Node::READY ||
          std::equal(record.served_app_ids().begin(), record.served_app_ids().end(),
                     change.served_app_ids().begin(), change.served_app_ids().end()));
}

absl::Status StateMachine::SetNodeState(const v1::SetNodeState& change) {
  ONEPIECE_RETURN_IF_ERROR(CheckChange(change));
  v1::NodeRecord& record = nodes_.at(change.node_id());
  if (IsKnown(record, change)) return absl::OkStatus();
  ONEPIECE_RETURN_IF_ERROR(CheckRoom(0, change.ByteSizeLong(), kMaxBytes + kMaxGrowth));
  const NodeChange node_change(*this, record);
  v1::Node& node = *record.mutable_node();
  node.set_state(change.state());
  node.set_detail(change.detail());
  record.set_served_epoch(change.assignment_epoch());
  if (change.state() != v1::Node::READY) {
    record.clear_served_app_ids();
  } else if (change.assignment_epoch() == node.assignment().epoch()) {
    *record.mutable_served_app_ids() = change.served_app_ids();
  }  // Otherwise the report is older than the assignment, which kept what the node goes on serving.
  if (version_ >= 2) {
    record.set_drained(IsDrained(node, change));
    record.set_load_failed(HasFailedToLoad(node, change));
  }
  Touch(record);
  return absl::OkStatus();
}

absl::Status StateMachine::SetNodeStates(const v1::SetNodeStates& changes) {
  absl::Status first;
  for (const v1::SetNodeState& change : changes.changes()) first.Update(SetNodeState(change));
  return first;
}

// Tells whether what the assignments were computed from is still so. Reports of nodes change the
// revision all the time in a large cluster, so since version 3 only what was read counts.
absl::Status StateMachine::CheckBase(const v1::Assign& change) const {
  const auto stale = [](const std::string& message) {
    return base::MakeError(absl::StatusCode::kAborted, "STALE_REVISION", message);
  };
  if (version_ < 3 || change.base_plan_revision() == 0) {
    return change.base_revision() == revision_
               ? absl::OkStatus()
               : stale(absl::StrCat("made for revision ", change.base_revision(), ", now it is ",
                                    revision_));
  }
  if (change.base_plan_revision() != plan_revision_) {
    return stale(absl::StrCat("made for plan revision ", change.base_plan_revision(),
                              ", now it is ", plan_revision_));
  }
  for (const v1::NodeAssignment& assignment : change.assignments()) {
    const auto known = nodes_.find(assignment.node_id());
    if (known == nodes_.end()) continue;  // Assign() says so.
    if (known->second.node().assignment().epoch() != assignment.base_epoch())
      return stale(
          absl::StrCat("node '", assignment.node_id(), "' has got another assignment since"));
  }
  return absl::OkStatus();
}

// Checks everything before it changes anything: an Assign takes effect whole or not at all.
absl::Status StateMachine::Assign(const v1::Assign& change, std::int64_t time) {
  ONEPIECE_RETURN_IF_ERROR(CheckBase(change));
  for (const v1::NodeAssignment& assignment : change.assignments()) {
    const auto known = nodes_.find(assignment.node_id());
    if (known == nodes_.end()) return NodeUnknown(assignment.node_id());
    const v1::Node& node = known->second.node();
    if (node.incarnation() != assignment.incarnation() || !IsAlive(node)) {
      return StaleIncarnation(assignment.node_id(), known->second);
    }
    if (node.role() != v1::INSTANCE) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "NOT_AN_INSTANCE",
                             absl::StrCat("node '", assignment.node_id(), "' is not an instance"));
    }
  }
  if (change.assignments().empty()) return absl::OkStatus();
  // An application may be named twice in the record: as assigned and as served.
  ONEPIECE_RETURN_IF_ERROR(CheckRoom(0, 2 * change.ByteSizeLong(), kMaxBytes + kMaxGrowth));
  ++epoch_;
  for (const v1::NodeAssignment& assignment : change.assignments()) {
    v1::NodeRecord& record = nodes_[assignment.node_id()];
    const NodeChange node_change(*this, record);
    changed_sets_.names.insert(record.node().workflow_set());
    v1::Assignment made;
    made.set_epoch(epoch_);
    if (assignment.has_stage()) *made.mutable_stage() = assignment.stage();
    *made.mutable_app_ids() = assignment.app_ids();
    *made.mutable_models() = assignment.models();
    made.set_workflow_set(assignment.workflow_set());
    made.set_draining(assignment.draining());
    made.set_removed(assignment.removed());
    // KeptApps() compares with the assignment that the next line replaces. An empty result means
    // that nothing is served, because `served_epoch` is older than the new epoch (ServedApps).
    *record.mutable_served_app_ids() = KeptApps(record, made, version_);
    *record.mutable_node()->mutable_assignment() = std::move(made);
    record.clear_drained();
    record.clear_load_failed();
    if (assignment.has_placement()) {
      Place(record, assignment.placement());
      PlanInputChanged();
    }
    Touch(record);
    Audit(time, "assign", assignment.node_id(),
          assignment.has_stage() ? assignment.stage().stage() : "idle");
  }
  return absl::OkStatus();
}

absl::Status StateMachine::ApplyWorkflow(const v1::Command& command) {
  const v1::Workflow& workflow = command.apply_workflow();
  ONEPIECE_RETURN_IF_ERROR(CheckAuthor(command, version_));
  v1::Workflow made = workflow;
  made.set_name("workflows/" + workflow.app_id());
  const auto known = workflows_.find(workflow.app_id());
  if (known != workflows_.end() &&
      base::CanonicalBytes(known->second.workflow()) == base::CanonicalBytes(made)) {
    return absl::OkStatus();
  }
  if (known == workflows_.end() && workflows_.size() >= kMaxWorkflows) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_WORKFLOWS",
                           absl::StrCat("the cluster has ", kMaxWorkflows, " workflows already"));
  }
  ONEPIECE_RETURN_IF_ERROR(CheckRoom(known == workflows_.end() ? 0 : known->second.ByteSizeLong(),
                                     made.ByteSizeLong(), kMaxBytes));
  PutWorkflow(std::move(made));
  Audit(command.time_unix_ms(), "apply_workflow", workflow.app_id(), AuthorOf(command));
  NoteConfigOf(absl::StrCat("ApplyWorkflow ", workflow.app_id()), command);
  return absl::OkStatus();
}

// `workflow` has its name already.
void StateMachine::PutWorkflow(v1::Workflow workflow) {
  const std::string app_id = workflow.app_id();
  v1::WorkflowRecord& record = workflows_[app_id];
  const Resizing resizing(bytes_, record);
  *record.mutable_workflow() = std::move(workflow);
  changed_sets_.all = true;
  record.set_revision(++revision_);
  PlanInputChanged();
  std::erase_if(deletions_, [&](const v1::WorkflowDeletion& d) { return d.app_id() == app_id; });
}

absl::Status StateMachine::DeleteWorkflow(const v1::Command& command) {
  const std::string& app_id = command.delete_workflow();
  ONEPIECE_RETURN_IF_ERROR(CheckAuthor(command, version_));
  if (!workflows_.contains(app_id)) {
    return base::MakeError(absl::StatusCode::kNotFound, "WORKFLOW_UNKNOWN",
                           absl::StrCat("there is no workflow '", app_id, "'"),
                           {{"app_id", app_id}});
  }
  EraseWorkflow(app_id);
  Audit(command.time_unix_ms(), "delete_workflow", app_id, AuthorOf(command));
  NoteConfigOf(absl::StrCat("DeleteWorkflow ", app_id), command);
  return absl::OkStatus();
}

void StateMachine::EraseWorkflow(const std::string& app_id) {
  const auto known = workflows_.find(app_id);
  bytes_ -= known->second.ByteSizeLong();
  workflows_.erase(known);
  changed_sets_.all = true;
  v1::WorkflowDeletion deletion;
  deletion.set_app_id(app_id);
  deletion.set_revision(++revision_);
  deletions_.push_back(std::move(deletion));
  // Watchers from before the forgotten deletion would never hear of it.
  if (deletions_.size() > kMaxDeletions) {
    history_floor_ = std::max(history_floor_, deletions_.front().revision());
    deletions_.pop_front();
    if (version_ >= 3) deletions_forgotten_ = true;
  }
  PlanInputChanged();
}

// What the earlier generation did after this state is lost, but nodes, watchers and clients have
// seen it. So no epoch, no revision and no plan id (which is made of a revision) of that lost
// future may come again, and every watcher takes a snapshot.
absl::Status StateMachine::BeginGeneration(const v1::BeginGeneration& change, std::int64_t time) {
  const std::uint32_t now = base::GenerationOf(epoch_);
  if (change.generation() <= now || change.generation() > base::kMaxGeneration) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "STALE_GENERATION",
        absl::StrCat("generation ", change.generation(), " cannot follow generation ", now));
  }
  epoch_ = base::FirstEpochOf(change.generation());
  changed_sets_.all = true;
  revision_ += kGenerationLeap;
  plan_revision_ += kGenerationLeap;
  history_floor_ = revision_;
  if (version_ >= 5) identity_.Leap(kGenerationLeap);
  Audit(time, "begin_generation", change.cause(),
        absl::StrCat("generation ", change.generation(), change.detail().empty() ? "" : ": ",
                     change.detail()));
  return absl::OkStatus();
}

void StateMachine::Audit(std::int64_t time, std::string_view action, std::string_view subject,
                         std::string_view detail) {
  v1::AuditEntry& entry = audit_.emplace_back();
  entry.set_revision(revision_);
  entry.set_time_unix_ms(time);
  entry.set_action(std::string(action));
  entry.set_subject(std::string(subject));
  entry.set_detail(std::string(detail));
  ++audited_;
  PopToSize(audit_, kMaxAudit);
}

StateMachine StateMachine::CopyForPlans() const {
  StateMachine copy;
  copy.applied_index_ = applied_index_;
  copy.revision_ = revision_;
  copy.epoch_ = epoch_;
  copy.plan_revision_ = plan_revision_;
  copy.version_ = version_;
  copy.set_epochs_ = set_epochs_;
  copy.nodes_ = nodes_;
  copy.workflows_ = workflows_;
  for (const v1::Plan& plan : plans_)
    copy.plans_.push_back(HasEnded(plan) ? WithoutPrediction(plan) : plan);
  copy.hold_ = hold_;
  copy.pool_limits_ = pool_limits_;
  return copy;
}

std::string StateMachine::Serialize() const {
  v1::NodeManagerState state;
  state.set_version(version_);
  state.set_applied_index(applied_index_);
  state.set_cluster_id(cluster_id_);
  state.set_cluster_secret(cluster_secret_);
  state.set_revision(revision_);
  state.set_epoch(epoch_);
  state.set_history_floor(history_floor_);
  state.set_forgotten_incarnation(forgotten_incarnation_);
  state.set_deletions_forgotten(deletions_forgotten_);
  for (const auto& [id, record] : nodes_) *state.add_nodes() = record;
  for (const auto& [id, record] : workflows_) *state.add_workflows() = record;
  state.mutable_deletions()->Add(deletions_.begin(), deletions_.end());
  state.mutable_audit()->Add(audit_.begin(), audit_.end());
  state.mutable_plans()->Add(plans_.begin(), plans_.end());
  state.set_plan_revision(plan_revision_);
  if (hold_.ByteSizeLong() > 0) *state.mutable_hold() = hold_;
  for (const auto& [key, limits] : pool_limits_) *state.add_pool_limits() = limits;
  for (const auto& [workflow_set, epoch] : set_epochs_) {
    v1::SetEpoch& line = *state.add_set_epochs();
    line.set_workflow_set(workflow_set);
    line.set_epoch(epoch);
  }
  if (settings_.ByteSizeLong() > 0) *state.mutable_config() = settings_;
  state.mutable_config_revisions()->Add(config_revisions_.begin(), config_revisions_.end());
  if (v1::IdentityState identity = identity_.Save(); identity.ByteSizeLong() > 0)
    *state.mutable_identity() = std::move(identity);
  std::string bytes = base::CanonicalBytes(state);
  // The requests are kept as the bytes that they are here.
  bytes.append(requests_.fields());
  return bytes;
}

absl::Status StateMachine::Restore(std::string_view bytes) {
  v1::NodeManagerState state;
  const bool parsed = state.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (parsed && state.version() > kCommandVersion) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NEWER_VERSION",
                           absl::StrCat("a state of version ", state.version(),
                                        ", this program knows ", kCommandVersion));
  }
  if (!parsed || state.version() == 0) {
    return base::MakeError(absl::StatusCode::kDataLoss, "BAD_SNAPSHOT",
                           "these bytes are not a NodeManager's state");
  }
  *this = StateMachine();
  version_ = state.version();
  applied_index_ = state.applied_index();
  cluster_id_ = state.cluster_id();
  cluster_secret_ = state.cluster_secret();
  revision_ = state.revision();
  epoch_ = state.epoch();
  history_floor_ = state.history_floor();
  forgotten_incarnation_ = state.forgotten_incarnation();
  deletions_forgotten_ = state.deletions_forgotten();
  for (v1::NodeRecord& record : *state.mutable_nodes()) {
    bytes_ += record.ByteSizeLong();
    nodes_[record.node().node_id()] = std::move(record);
  }
  for (v1::WorkflowRecord& record : *state.mutable_workflows()) {
    bytes_ += record.ByteSizeLong();
    workflows_[record.workflow().app_id()] = std::move(record);
  }
  deletions_.assign(state.deletions().begin(), state.deletions().end());
  audit_.assign(state.audit().begin(), state.audit().end());
  plans_.assign(state.plans().begin(), state.plans().end());
  plan_revision_ = state.plan_revision();
  hold_ = state.hold();
  for (const v1::PoolLimits& limits : state.pool_limits())
    pool_limits_[{limits.workflow_set(), limits.pool()}] = limits;
  for (const v1::SetEpoch& line : state.set_epochs())
    set_epochs_[line.workflow_set()] = line.epoch();
  settings_ = state.config();
  for (v1::ConfigRevision& revision : *state.mutable_config_revisions()) {
    config_history_bytes_ += revision.config().ByteSizeLong();
    config_revisions_.push_back(std::move(revision));
  }
  identity_.Load(state.identity());
  for (const v1::RememberedRequest& request : state.requests()) requests_.Add(request);
  return absl::OkStatus();
}

}  // namespace onepiece::nodemanager
