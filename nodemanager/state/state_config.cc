// The state machine's configuration: what SetConfig checks and replaces, and the history of what
// was decided (docs/consensus.md, "The state").
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/workflow/pool.h"
#include "nodemanager/state/plan_state.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {
namespace {

// A client of an earlier version does not say who changes a workflow.
constexpr char kUnknownAuthor[] = "operator:unknown";
constexpr std::size_t kMaxKnownPools = 20;  // A refusal names at most so many.

using PoolPlace = std::pair<std::string, std::string>;  // Workflow set and pool.

absl::Status BadField(const std::string& field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                         absl::StrCat(field, ": ", message), {{"field", field}});
}

std::string FieldOf(const PoolPlace& place, std::string_view key) {
  return absl::StrCat("workflow_sets[", place.first, "].pools[", place.second, "].",
                      base::AbslView(key));
}

// What the workflows ask for of each pool, before limits.
std::map<std::string, workflow::PoolBounds> BoundsOf(const v1::ClusterConfig& config) {
  std::map<std::string, workflow::PoolBounds> pools;
  for (const v1::Workflow& workflow : config.workflows()) {
    for (const v1::StageSpec& stage : workflow.stages())
      pools[workflow::PoolIdOf(stage)].Add(stage);
  }
  return pools;
}

std::map<PoolPlace, v1::PoolConfig> PoolsByPlace(const v1::ClusterConfig& config) {
  std::map<PoolPlace, v1::PoolConfig> pools;
  for (const v1::WorkflowSetConfig& set : config.workflow_sets()) {
    for (const v1::PoolConfig& pool : set.pools()) pools[{set.name(), pool.pool()}] = pool;
  }
  return pools;
}

bool SaysNothing(const v1::PoolConfig& pool) {
  return pool.min_instances() == 0 && pool.max_instances() == 0 && pool.device().empty() &&
         pool.device_memory_bytes() == 0;
}

v1::PoolLimits LimitsOf(const PoolPlace& place, const v1::PoolConfig& pool) {
  v1::PoolLimits limits;
  limits.set_workflow_set(place.first);
  limits.set_pool(place.second);
  limits.set_min_instances(pool.min_instances());
  limits.set_max_instances(pool.max_instances());
  limits.set_device(pool.device());
  limits.set_device_memory_bytes(pool.device_memory_bytes());
  return limits;
}

v1::Workflow WithoutName(v1::Workflow workflow) {
  workflow.clear_name();
  return workflow;
}

v1::Workflow WithName(v1::Workflow workflow) {
  workflow.set_name("workflows/" + workflow.app_id());
  return workflow;
}

// Replaces one section. What a section may be is written out here, and not taken from the
// descriptor: the answer is a part of the state, and a newer program's descriptor has more fields.
absl::Status ReplaceSection(const v1::ClusterConfig& from, const std::string& section,
                            v1::ClusterConfig& config) {
  if (section == "elasticity") {
    config.clear_elasticity();
    if (from.has_elasticity()) *config.mutable_elasticity() = from.elasticity();
  } else if (section == "liveness") {
    config.clear_liveness();
    if (from.has_liveness()) *config.mutable_liveness() = from.liveness();
  } else if (section == "workflow_sets") {
    *config.mutable_workflow_sets() = from.workflow_sets();
  } else if (section == "workflows") {
    *config.mutable_workflows() = from.workflows();
  } else if (section == "alerts") {
    *config.mutable_alerts() = from.alerts();
  } else if (section == "limits") {
    config.clear_limits();
    if (from.has_limits()) *config.mutable_limits() = from.limits();
  } else {
    return BadField("sections", absl::StrCat("'", section, "' is no section"));
  }
  return absl::OkStatus();
}

// Brings the lists into the order of the state, without what says nothing.
absl::Status SortWorkflows(v1::ClusterConfig& config) {
  std::map<std::string, v1::Workflow> workflows;
  for (v1::Workflow& workflow : *config.mutable_workflows()) {
    const std::string app_id = workflow.app_id();
    if (app_id.empty()) return BadField("workflows[].app_id", "a workflow has an id");
    if (!workflows.try_emplace(app_id, WithoutName(std::move(workflow))).second)
      return BadField(absl::StrCat("workflows[", app_id, "]"), "is there twice");
  }
  config.clear_workflows();
  for (auto& [app_id, workflow] : workflows) *config.add_workflows() = std::move(workflow);
  return absl::OkStatus();
}

absl::Status CheckPoolConfig(const PoolPlace& place, const v1::PoolConfig& pool) {
  const absl::Status limits = CheckLimits(LimitsOf(place, pool));
  if (limits.ok()) return absl::OkStatus();
  const char* key = pool.min_instances() < 0         ? "min_instances"
                    : pool.device_memory_bytes() < 0 ? "device_memory_bytes"
                    : pool.max_instances() < 0 || pool.max_instances() < pool.min_instances()
                        ? "max_instances"
                        : "pool";
  return BadField(FieldOf(place, pool.pool().empty() ? "pool" : key), base::Message(limits));
}

absl::Status SortPools(v1::ClusterConfig& config) {
  std::map<std::string, std::map<std::string, v1::PoolConfig>> sets;
  std::set<std::string> names;
  for (const v1::WorkflowSetConfig& set : config.workflow_sets()) {
    if (set.name().empty()) return BadField("workflow_sets[].name", "a workflow set has a name");
    if (!names.insert(set.name()).second)
      return BadField(absl::StrCat("workflow_sets[", set.name(), "]"), "is there twice");
    for (const v1::PoolConfig& pool : set.pools()) {
      const PoolPlace place(set.name(), pool.pool());
      ONEPIECE_RETURN_IF_ERROR(CheckPoolConfig(place, pool));
      if (!sets[set.name()].try_emplace(pool.pool(), pool).second)
        return BadField(FieldOf(place, "pool"), "is there twice");
    }
  }
  config.clear_workflow_sets();
  for (const auto& [name, pools] : sets) {
    v1::WorkflowSetConfig made;
    made.set_name(name);
    for (const auto& [id, pool] : pools) {
      if (!SaysNothing(pool)) *made.add_pools() = pool;
    }
    if (!made.pools().empty()) *config.add_workflow_sets() = std::move(made);
  }
  return absl::OkStatus();
}

absl::Status PoolUnknown(const PoolPlace& place,
                         const std::map<std::string, workflow::PoolBounds>& known) {
  std::string names;
  std::size_t told = 0;
  for (const auto& [id, bounds] : known) {
    if (++told > kMaxKnownPools) break;
    absl::StrAppend(&names, names.empty() ? "" : ", ", id);
  }
  return BadField(FieldOf(place, "pool"),
                  absl::StrCat("no workflow has a stage in it; ",
                               known.empty() ? "there are no pools" : "the pools are ", names,
                               known.size() > kMaxKnownPools ? ", …" : ""));
}

// An entry that the state has already may be applied again, even when its pool is gone: limits
// outlive a deleted workflow.
absl::Status CheckPools(const v1::ClusterConfig& present, const v1::ClusterConfig& next) {
  const std::map<std::string, workflow::PoolBounds> bounds = BoundsOf(next);
  const std::map<PoolPlace, v1::PoolConfig> before = PoolsByPlace(present);
  for (const auto& [place, pool] : PoolsByPlace(next)) {
    if (const auto same = before.find(place);
        same != before.end() && base::CanonicalBytes(same->second) == base::CanonicalBytes(pool))
      continue;
    const auto asked = bounds.find(place.second);
    if (asked == bounds.end()) return PoolUnknown(place, bounds);
    if (pool.max_instances() > 0 && pool.max_instances() < asked->second.least) {
      return BadField(FieldOf(place, "max_instances"),
                      absl::StrCat(pool.max_instances(), " is below the minimum of ",
                                   asked->second.least, " that the workflows ask for"));
    }
  }
  return absl::OkStatus();
}

// The most instances that a pool may have in a set. 0: no maximum.
class Maxima {
 public:
  explicit Maxima(const v1::ClusterConfig& config)
      : bounds_(BoundsOf(config)), pools_(PoolsByPlace(config)) {}

  [[nodiscard]] int Of(const PoolPlace& place) const {
    const auto asked = bounds_.find(place.second);
    if (asked == bounds_.end()) return 0;
    workflow::PoolBounds bounds = asked->second;
    if (const auto pool = pools_.find(place); pool != pools_.end())
      bounds.Limit(pool->second.min_instances(), pool->second.max_instances());
    return bounds.Most();
  }

 private:
  const std::map<std::string, workflow::PoolBounds> bounds_;
  const std::map<PoolPlace, v1::PoolConfig> pools_;
};

// How many live instances each pool has: those that plans have placed there, and those that are
// assigned without a placement.
std::map<PoolPlace, int> CountUse(const std::map<std::string, v1::NodeRecord>& nodes) {
  std::map<PoolPlace, int> use;
  for (const auto& [id, record] : nodes) {
    const v1::Node& node = record.node();
    if (node.role() != v1::INSTANCE || !IsAlive(node)) continue;
    std::string pool;
    if (node.has_placement()) {
      if (!node.placement().removed()) pool = node.placement().pool();
    } else if (node.assignment().has_stage()) {
      pool = workflow::PoolIdOf(node.assignment().stage());
    }
    if (!pool.empty()) ++use[{node.workflow_set(), pool}];
  }
  return use;
}

// Nothing takes instances out of a pool that is above its maximum, so a maximum below use would
// only look as if it held.
absl::Status CheckUse(const std::map<std::string, v1::NodeRecord>& nodes,
                      const v1::ClusterConfig& present, const v1::ClusterConfig& next) {
  const Maxima before(present), after(next);
  for (const auto& [place, instances] : CountUse(nodes)) {
    const int was = before.Of(place), most = after.Of(place);
    const bool lowered = most > 0 && (was == 0 || most < was);
    if (!lowered || most >= instances) continue;
    const std::string field = FieldOf(place, "max_instances");
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "BELOW_USE",
        absl::StrCat(field, ": at most ", most, ", but ", instances,
                     " instances are there: move or remove ", instances - most, " first"),
        {{"field", field}, {"in_use", absl::StrCat(instances)}});
  }
  return absl::OkStatus();
}

v1::ClusterConfig SettingsOnly(v1::ClusterConfig config) {
  config.clear_workflows();
  config.clear_workflow_sets();
  return config;
}

bool IsSame(const google::protobuf::MessageLite& a, const google::protobuf::MessageLite& b) {
  return base::CanonicalBytes(a) == base::CanonicalBytes(b);
}

}  // namespace

v1::ClusterConfig StateMachine::Config() const {
  v1::ClusterConfig config = settings_;
  for (const auto& [app_id, record] : workflows_)
    *config.add_workflows() = WithoutName(record.workflow());
  for (const auto& [place, limits] : pool_limits_) {
    const int sets = config.workflow_sets_size();
    const bool is_new = sets == 0 || config.workflow_sets(sets - 1).name() != place.first;
    v1::WorkflowSetConfig& set =
        is_new ? *config.add_workflow_sets() : *config.mutable_workflow_sets(sets - 1);
    set.set_name(place.first);
    v1::PoolConfig& pool = *set.add_pools();
    pool.set_pool(place.second);
    pool.set_min_instances(limits.min_instances());
    pool.set_max_instances(limits.max_instances());
    pool.set_device(limits.device());
    pool.set_device_memory_bytes(limits.device_memory_bytes());
  }
  return config;
}

absl::StatusOr<v1::ClusterConfig> StateMachine::CheckConfig(const v1::SetConfig& change) const {
  return CheckConfig(change, Config());
}

absl::StatusOr<v1::ClusterConfig> StateMachine::CheckConfig(
    const v1::SetConfig& change, const v1::ClusterConfig& present) const {
  if (version_ < 4) {
    return base::MakeError(
        absl::StatusCode::kFailedPrecondition, "FEATURE_LEVEL",
        absl::StrCat("a configuration needs feature level 4, and the cluster's is ", version_,
                     ": when all NodeManagers are updated, run `onepiece cluster upgrade`"));
  }
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("actor", change.actor()));
  ONEPIECE_RETURN_IF_ERROR(CheckPlanText("reason", change.reason()));
  if (change.base_revision() != 0 && change.base_revision() != config_revision()) {
    return base::MakeError(absl::StatusCode::kAborted, "STALE_REVISION",
                           absl::StrCat("made for configuration revision ", change.base_revision(),
                                        ", now it is ", config_revision()));
  }
  if (change.sections().empty()) return BadField("sections", "at least one");
  v1::ClusterConfig next = present;
  for (const std::string& section : change.sections())
    ONEPIECE_RETURN_IF_ERROR(ReplaceSection(change.config(), section, next));
  ONEPIECE_RETURN_IF_ERROR(SortWorkflows(next));
  ONEPIECE_RETURN_IF_ERROR(SortPools(next));
  ONEPIECE_RETURN_IF_ERROR(CheckPools(present, next));
  ONEPIECE_RETURN_IF_ERROR(CheckUse(nodes_, present, next));
  ONEPIECE_RETURN_IF_ERROR(CheckConfigRoom(next));
  return next;
}

absl::Status StateMachine::CheckConfigRoom(const v1::ClusterConfig& next) const {
  const auto exhausted = [](const char* reason, const std::string& message) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, reason, message);
  };
  if (static_cast<std::size_t>(next.workflows_size()) > std::max(kMaxWorkflows, workflows_.size()))
    return exhausted("TOO_MANY_WORKFLOWS",
                     absl::StrCat("a cluster has at most ", kMaxWorkflows, " workflows"));
  if (const std::size_t pools = PoolsByPlace(next).size();
      pools > std::max(kMaxPoolLimits, pool_limits_.size()))
    return exhausted("TOO_MANY_LIMITS",
                     absl::StrCat(pools, " pools have limits, at most ", kMaxPoolLimits));
  if (const std::size_t bytes = SettingsOnly(next).ByteSizeLong(); bytes > kMaxSettingsBytes)
    return exhausted("STATE_FULL", absl::StrCat("elasticity, liveness, alerts and limits take ",
                                                bytes, " bytes, at most ", kMaxSettingsBytes));
  std::size_t before = 0, after = 0;
  for (const auto& [app_id, record] : workflows_) before += record.workflow().ByteSizeLong();
  for (const v1::Workflow& workflow : next.workflows()) after += WithName(workflow).ByteSizeLong();
  return CheckRoom(before, after, kMaxBytes);
}

absl::Status StateMachine::SetConfig(const v1::SetConfig& change, std::int64_t time) {
  if (change.seed() && config_revision() > 0) return absl::OkStatus();
  const v1::ClusterConfig present = Config();
  ONEPIECE_ASSIGN_OR_RETURN(v1::ClusterConfig next, CheckConfig(change, present));
  if (!change.seed() && IsSame(present, next)) return absl::OkStatus();
  TakeWorkflows(next);
  TakePools(next);
  settings_ = SettingsOnly(next);
  ++revision_;
  // What is checked is in the order of the state, so it is what Config() would be now.
  NoteConfig(change.actor(), change.reason(), std::move(next), time);
  Audit(time, "set_config", absl::StrCat("revision ", config_revision()),
        absl::StrCat(change.actor(), change.reason().empty() ? "" : ": ", change.reason()));
  return absl::OkStatus();
}

void StateMachine::TakeWorkflows(const v1::ClusterConfig& next) {
  std::map<std::string, const v1::Workflow*> wanted;
  for (const v1::Workflow& workflow : next.workflows()) wanted[workflow.app_id()] = &workflow;
  std::vector<std::string> gone;
  for (const auto& [app_id, record] : workflows_) {
    if (!wanted.contains(app_id)) gone.push_back(app_id);
  }
  for (const std::string& app_id : gone) EraseWorkflow(app_id);
  for (const auto& [app_id, workflow] : wanted) {
    const auto known = workflows_.find(app_id);
    v1::Workflow made = WithName(*workflow);
    if (known == workflows_.end() || !IsSame(known->second.workflow(), made))
      PutWorkflow(std::move(made));
  }
}

void StateMachine::TakePools(const v1::ClusterConfig& next) {
  std::map<PoolPlace, v1::PoolLimits> limits;
  for (const auto& [place, pool] : PoolsByPlace(next)) limits[place] = LimitsOf(place, pool);
  const bool same = std::ranges::equal(limits, pool_limits_, [](const auto& a, const auto& b) {
    return a.first == b.first && IsSame(a.second, b.second);
  });
  if (same) return;
  pool_limits_ = std::move(limits);
  PlanInputChanged();
}

void StateMachine::NoteConfigOf(std::string_view what, const v1::Command& command) {
  if (config_revision() == 0) return;
  NoteConfig(command.actor().empty() ? kUnknownAuthor : command.actor(),
             command.reason().empty() ? std::string(what) : command.reason(), Config(),
             command.time_unix_ms());
}

void StateMachine::NoteConfig(const std::string& actor, const std::string& reason,
                              v1::ClusterConfig config, std::int64_t time) {
  const std::uint64_t before = config_revision();
  v1::ConfigRevision& made = config_revisions_.emplace_back();
  made.set_revision(before + 1);
  made.set_time_unix_ms(time);
  made.set_author(actor);
  made.set_reason(reason);
  *made.mutable_config() = std::move(config);
  // The present configuration is in the state anyway. It is kept here for the day when it is an
  // earlier one.
  if (made.config().ByteSizeLong() > kMaxConfigHistoryBytes) made.clear_config();
  config_history_bytes_ += made.config().ByteSizeLong();
  BoundConfigHistory();
}

void StateMachine::BoundConfigHistory() {
  while (config_revisions_.size() > kMaxConfigRevisions ||
         config_history_bytes_ > kMaxConfigHistoryBytes) {
    config_history_bytes_ -= config_revisions_.front().config().ByteSizeLong();
    config_revisions_.pop_front();
  }
}

}  // namespace onepiece::nodemanager
