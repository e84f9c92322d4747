#include "nodemanager/simulator/leader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/check.h"
#include "cluster/base/seconds.h"
#include "cluster/workflow/pool.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/state/plan_state.h"

namespace onepiece::simulator {
namespace {

constexpr const char* kPlugin = "sim";
/// More rounds than this never follow from one another. A loop here would hang the simulation.
constexpr int kMaxRounds = 1000;

}  // namespace

std::string Leader::SetName(int set) {
  return set == 0 ? "default" : absl::StrCat("set-", set + 1);
}

std::string Leader::ProxyName(int set, int proxy) {
  return absl::StrCat("proxy-", SetName(set), "-", proxy + 1);
}

Leader::Leader(const System& system, const v1::SimulationConfig& settings,
               const v1::ElasticityConfig& elasticity, Fleet& fleet, base::Clock& clock)
    : system_(system),
      settings_(settings),
      elasticity_(elasticity),
      fleet_(fleet),
      clock_(clock),
      window_(base::FromSeconds(elasticity.window_s())),
      incarnations_(static_cast<std::size_t>(system.devices)),
      epochs_(static_cast<std::size_t>(system.devices)) {
  NamePools();
  for (int i = 0; i < system.devices; ++i) {
    names_.push_back(absl::StrFormat("gpu-%04d", i));
    devices_[names_.back()] = i;
  }
  fleet_.ForbidJoining([this](int device) { return IsMoving(device); });
  Found();
}

// In the product a pool serves stages of one name. Here a pool of stages with several names has its
// own for all of them.
void Leader::NamePools() {
  for (const Pool& pool : system_.pools) stage_names_.push_back(pool.stage);
  for (const App& app : system_.apps) {
    for (const Stage& stage : app.stages) {
      if (stage.name != system_.pools[stage.pool].stage)
        stage_names_[stage.pool] = system_.pools[stage.pool].id;
    }
  }
  for (std::size_t p = 0; p < system_.pools.size(); ++p) {
    v1::StageSpec spec;
    spec.set_stage(stage_names_[p]);
    spec.set_plugin(kPlugin);
    spec.set_pool(system_.pools[p].id);
    pool_ids_.push_back(workflow::PoolIdOf(spec));
    pools_[pool_ids_.back()] = static_cast<int>(p);
  }
}

v1::Workflow Leader::WorkflowOf(const App& app) const {
  v1::Workflow made;
  made.set_app_id(app.id);
  for (const Stage& stage : app.stages) {
    v1::StageSpec& spec = *made.add_stages();
    spec.set_stage(stage_name(stage));
    spec.set_plugin(kPlugin);
    spec.set_pool(system_.pools[stage.pool].id);
    spec.set_min_instances(system_.pools[stage.pool].min_instances);
    spec.set_max_instances(system_.pools[stage.pool].max_instances);
    for (const int before : stage.after) spec.add_after(stage_name(app.stages[before]));
  }
  return made;
}

// The cluster is there, and everybody serves, before the first job comes.
void Leader::Found() {
  v1::Command initialize;
  initialize.mutable_initialize()->set_cluster_id("simulated");
  initialize.mutable_initialize()->set_cluster_secret(std::string(32, 's'));
  Apply(std::move(initialize));
  for (const App& app : system_.apps) {
    v1::Command apply;
    *apply.mutable_apply_workflow() = WorkflowOf(app);
    Apply(std::move(apply));
  }
  for (int set = 0; set < settings_.workflow_sets(); ++set) {
    sets_[SetName(set)] = set;
    for (int proxy = 0; proxy < settings_.proxies(); ++proxy) {
      v1::Command join, ready;
      v1::Node& node = *join.mutable_register_node();
      node.set_node_id(ProxyName(set, proxy));
      node.set_role(v1::PROXY);
      node.set_incarnation(++next_incarnation_);
      node.set_workflow_set(SetName(set));
      v1::SetNodeState& state = *ready.mutable_set_node_state();
      state.set_node_id(node.node_id());
      state.set_incarnation(node.incarnation());
      state.set_state(v1::Node::READY);
      Apply(std::move(join));
      Apply(std::move(ready));
    }
  }
  for (int i = 0; i < system_.devices; ++i) {
    const Device& device = fleet_.devices()[i];
    if (device.state == Device::State::kMember) continue;
    Register(i);
    Put(i);
    if (device.state == Device::State::kServing) TellState(i, false, false);
  }
  followed_revision_ = machine_.revision();
}

v1::CommandResult Leader::Apply(v1::Command command) {
  command.set_time_unix_ms(base::ToUnixMs(clock_.WallNow()));
  const v1::CommandResult result = machine_.Apply(machine_.applied_index() + 1, command);
  ages_.Note(machine_, clock_.Now());
  return result;
}

void Leader::Register(int index) {
  v1::Command command;
  v1::Node& node = *command.mutable_register_node();
  node.set_node_id(names_[index]);
  node.set_role(v1::INSTANCE);
  node.set_incarnation(incarnations_[index] = ++next_incarnation_);
  node.set_workflow_set(SetName(fleet_.devices()[index].set));
  const v1::CommandResult result = Apply(std::move(command));
  ONEPIECE_CHECK(result.code() == 0);
}

void Leader::Put(int index) {
  const Device& device = fleet_.devices()[index];
  v1::Command command;
  v1::Assign& assign = *command.mutable_assign();
  assign.set_base_revision(machine_.revision());
  assign.set_base_plan_revision(machine_.plan_revision());
  v1::NodeAssignment& made = *assign.add_assignments();
  made.set_node_id(names_[index]);
  made.set_incarnation(incarnations_[index]);
  made.set_workflow_set(SetName(device.set));
  made.mutable_placement();
  if (device.pool != kIdlePool) {
    made.mutable_placement()->set_pool(pool_ids_[device.pool]);
    for (const App& app : system_.apps) {
      for (const Stage& stage : app.stages) {
        if (stage.pool != device.pool) continue;
        const v1::Workflow workflow = WorkflowOf(app);
        if (!made.has_stage()) {
          *made.mutable_stage() = workflow.stages(static_cast<int>(&stage - app.stages.data()));
          made.mutable_stage()->clear_after();
        }
        made.add_app_ids(app.id);
        made.add_models("");
      }
    }
  }
  const v1::CommandResult result = Apply(std::move(command));
  ONEPIECE_CHECK(result.code() == 0);
  epochs_[index] = machine_.nodes().at(names_[index]).node().assignment().epoch();
}

nodemanager::Telemetry Leader::telemetry() const {
  return {.window = &window_,
          .routing_epoch = [this](const std::string&) { return machine_.epoch(); },
          .now = clock_.Now(),
          .wall_now = clock_.WallNow(),
          .ages = &ages_};
}

bool Leader::IsMoving(int device) const {
  return nodemanager::FindMove(machine_.plans(), names_[device]) != nullptr;
}

void Leader::TellState(int index, bool drained, bool load_failed) {
  v1::Command command;
  v1::SetNodeState& state = *command.mutable_set_node_state();
  state.set_node_id(names_[index]);
  state.set_incarnation(incarnations_[index]);
  state.set_state(load_failed ? v1::Node::STARTING : v1::Node::READY);
  state.set_assignment_epoch(epochs_[index]);
  state.set_drained(drained);
  state.set_load_failed(load_failed);
  if (load_failed) state.set_detail("simulated");
  Apply(std::move(command));
}

void Leader::Hear(const News& news) {
  const int index = news.device;
  v1::Command command;
  switch (news.kind) {
    case News::Kind::kDrained:
      return TellState(index, true, false);
    case News::Kind::kServes:
      return TellState(index, false, false);
    case News::Kind::kLoadFailed:
      return TellState(index, false, true);
    case News::Kind::kJoined:
    case News::Kind::kLost: {
      window_.Forget(names_[index]);
      v1::EndNode& end = *command.mutable_end_node();
      end.set_node_id(names_[index]);
      end.set_incarnation(incarnations_[index]);
      Apply(std::move(command));
      if (news.kind == News::Kind::kLost) return;
      v1::Command remove;
      remove.mutable_remove_node()->set_node_id(names_[index]);
      remove.mutable_remove_node()->set_incarnation(incarnations_[index]);
      Apply(std::move(remove));
      return;
    }
    case News::Kind::kFreed:
      Register(index);
      return Put(index);
    case News::Kind::kReturned:
      epochs_[index] = 0;
      return Register(index);
  }
}

// Tells the fleet which assignments are new.
void Leader::FollowState(Time now) {
  if (machine_.revision() == followed_revision_) return;
  followed_revision_ = machine_.revision();
  // Following may free other devices, and these are told of later.
  for (int i = 0; i < system_.devices; ++i) {
    const auto known = machine_.nodes().find(names_[i]);
    if (known == machine_.nodes().end() || !nodemanager::IsAlive(known->second.node())) continue;
    const v1::Node& node = known->second.node();
    if (!node.has_assignment() || node.assignment().epoch() == epochs_[i]) continue;
    epochs_[i] = node.assignment().epoch();
    const std::string pool = nodemanager::AssignedPool(node);
    const auto set = sets_.find(node.workflow_set());
    fleet_.Follow(i,
                  {.set = set == sets_.end() ? 0 : set->second,
                   .pool = pool.empty() ? kIdlePool : pools_.at(pool),
                   .draining = node.assignment().draining()},
                  now);
  }
}

void Leader::Settle(Time now) {
  for (int round = 0; round < kMaxRounds; ++round) {
    for (const News& news : fleet_.TakeNews()) Hear(news);
    v1::Command assign;
    *assign.mutable_assign() = assigner_.Plan(machine_);
    if (!assign.assign().assignments().empty()) Apply(std::move(assign));
    for (v1::Command& step : nodemanager::NextSteps(machine_, telemetry(), elasticity_))
      Apply(std::move(step));
    FollowState(now);
    if (!fleet_.has_news() && machine_.revision() == followed_revision_) break;
  }
  NoteEndedMoves();
}

void Leader::NoteEndedMoves() {
  for (const v1::Plan& plan : machine_.plans()) {
    if (!nodemanager::HasEnded(plan) || reverts_.contains(plan.plan_id())) continue;
    std::uint64_t& back = reverts_[plan.plan_id()];
    for (const v1::Move& move : plan.moves())
      back += move.phase() == v1::Move::REVERTED || move.phase() == v1::Move::FAILED ? 1 : 0;
  }
}

std::uint64_t Leader::reverts() const {
  std::uint64_t sum = 0;
  for (const auto& [plan, back] : reverts_) sum += back;
  return sum;
}

// A pool of large instances gets one only when enough devices are idle. The policy may want it
// again at its next decision.
void Leader::DropImpossible(nodemanager::PolicyDecision& decision) const {
  std::vector<int> idle;
  for (int set = 0; set < settings_.workflow_sets(); ++set)
    idle.push_back(fleet_.idle_devices(set));
  std::erase_if(decision.moves, [&](const nodemanager::WantedMove& move) {
    const auto pool = pools_.find(move.to_pool);
    const auto set = sets_.find(move.to_set);
    if (pool == pools_.end() || set == sets_.end()) return false;
    const Device& device = fleet_.devices()[devices_.at(move.node_id)];
    const int has = device.set != set->second ? 1 : 1 + static_cast<int>(device.members.size());
    // An idle device is one of those that are counted.
    int& left = idle[static_cast<std::size_t>(set->second)];
    const int own = device.state == Device::State::kIdle && device.set == set->second ? 1 : 0;
    const int more = std::max(0, system_.pools[pool->second].devices - has);
    if (more > left - own) return true;
    left -= more + own;
    return false;
  });
}

std::string Leader::Decide(const nodemanager::Policy& policy, Time now) {
  if (const std::string busy = nodemanager::WhyNoPolicyPlan(machine_); !busy.empty()) return busy;
  nodemanager::PolicyView view = MakePolicyView(machine_, telemetry(), elasticity_);
  for (nodemanager::PoolView& pool : view.pools)
    pool.resource = system_.pools[pools_.at(pool.id)].devices;
  nodemanager::PolicyDecision decision = policy.Decide(view);
  const std::string detail = decision.detail;
  DropImpossible(decision);
  if (decision.moves.empty()) return detail;
  v1::Command start;
  *start.mutable_start_plan()->mutable_plan() =
      PlanOf(machine_, telemetry(), elasticity_, std::move(decision));
  const v1::Plan& plan = start.start_plan().plan();
  if (plan.moves().empty()) return plan.reason();
  moves_ += static_cast<std::uint64_t>(plan.moves_size());
  Apply(std::move(start));
  Settle(now);
  return detail;
}

}  // namespace onepiece::simulator
