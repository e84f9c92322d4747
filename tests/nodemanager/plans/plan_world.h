// A cluster around the state machine in which plans run, in one thread and with a clock of its own.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "nodemanager/assignment/assigner.h"
#include "nodemanager/assignment/pools.h"
#include "nodemanager/plans/plans.h"
#include "nodemanager/state/plan_state.h"
#include "tests/nodemanager/state/builders.h"

namespace onepiece::nodemanager {

/// The assigner follows every command, as in the controller. After each command the world checks
/// what must always hold. `wrong` says what did not hold.
struct PlanWorld {
  StateMachine machine;
  std::vector<v1::Command> log;
  std::int64_t now_ms = 1'000'000;
  std::int64_t skew_ms = 0;  // How far the leader's wall clock is ahead.
  StampAges ages;            // What the leader saw. A new one is that of a new leader.
  // told_epochs: the routing epochs that nodes have told this leader.
  std::map<std::string, std::uint64_t> incarnations, told_epochs;
  std::set<std::string> silent;        // These nodes live, but learn and say nothing.
  std::set<std::string> holding;       // These nodes do not say that they are drained.
  std::set<std::string> broken_pools;  // The models of these pools do not load.
  std::string load_error;              // What the instances of such a pool say.
  std::map<std::string, std::uint64_t> assignment_epochs;
  std::string wrong;
  std::string actor = "operator:test";      // Who begins plans.
  std::uint32_t version = kCommandVersion;  // Of the commands.
  v1::ElasticityConfig config;

  PlanWorld() {
    config.set_max_moves(2);
    config.set_move_timeout_s(30);
  }

  [[nodiscard]] base::MonotonicTime Now() const {
    return base::MonotonicTime(std::chrono::milliseconds(now_ms));
  }
  v1::CommandResult Apply(v1::Command command) {
    command.set_time_unix_ms(now_ms + skew_ms);
    log.push_back(command);
    if (v1::Command read; !read.ParseFromString(base::CanonicalBytes(command)))
      wrong = "a command cannot be read back";
    const std::uint64_t revision = machine.revision(), epoch = machine.epoch();
    const v1::CommandResult result = machine.Apply(machine.applied_index() + 1, command, version);
    ages.Note(machine, Now());
    if (machine.revision() < revision || machine.epoch() < epoch) wrong = "a counter has fallen";
    LookAtRoutes();
    return result;
  }
  v1::CommandResult Do(const v1::Command& command) {
    const v1::CommandResult result = Apply(command);
    for (int i = 0; i < 3; ++i) {
      v1::Command assign;
      *assign.mutable_assign() = Assigner().Plan(machine);
      if (assign.assign().assignments().empty()) return result;
      if (i > 0) wrong = "the assigner does not come to rest";
      if (Apply(assign).code() != 0) wrong = "an assignment is refused";
    }
    return result;
  }
  void LookAtRoutes() {
    std::map<std::string, std::pair<std::string, std::string>> roles;
    for (const char* set : {"default", "far"}) {
      const v1::RoutingTable table = machine.Routing(set);
      for (const v1::Route& route : table.routes()) {
        for (const v1::Endpoint& instance : route.instances()) {
          const std::pair role(std::string(set), route.stage());
          if (roles.try_emplace(instance.node_id(), role).first->second != role)
            wrong = absl::StrCat(instance.node_id(), " has two roles");
          const v1::Move* move = FindMove(machine.plans(), instance.node_id());
          if (move != nullptr && move->phase() == v1::Move::DRAINING)
            wrong = absl::StrCat(instance.node_id(), " drains and is in a route");
        }
      }
    }
    for (const auto& [id, record] : machine.nodes()) {
      if (!record.node().has_assignment()) continue;
      std::uint64_t& last = assignment_epochs[id];
      if (record.node().assignment().epoch() < last) wrong = "an assignment's epoch has fallen";
      last = record.node().assignment().epoch();
    }
  }

  void Start(const std::string& id, v1::Role role, const std::string& set = "default",
             const std::string& pinned = "") {
    v1::Node node = MakeNode(id, role, ++incarnations[id], pinned);
    node.set_workflow_set(set);
    told_epochs.erase(id);
    silent.erase(id);
    Do(RegisterCommand(node));
  }
  void Restart(const std::string& id) {
    const v1::NodeRecord& record = machine.nodes().at(id);
    Start(id, record.node().role(), DescribedSet(record), record.node().pinned_stage());
  }
  void Kill(const std::string& id) { Do(EndCommand(id, incarnations[id])); }

  void NodesReport() {
    std::vector<v1::Command> reports;
    for (const auto& [id, record] : machine.nodes()) {
      const v1::Node& node = record.node();
      if (!IsAlive(node) || silent.contains(id)) continue;
      told_epochs[id] = machine.epoch();
      const v1::Assignment& assignment = node.assignment();
      const bool broken = broken_pools.contains(AssignedPool(node));
      const bool serves = node.role() != v1::INSTANCE || (assignment.has_stage() && !broken);
      v1::Command report = StateCommand(id, serves ? v1::Node::READY : v1::Node::STARTING,
                                        assignment.epoch(), node.incarnation());
      report.mutable_set_node_state()->set_drained(assignment.draining() && !holding.contains(id));
      report.mutable_set_node_state()->set_load_failed(broken);
      if (broken) report.mutable_set_node_state()->set_detail(load_error);
      if (!machine.IsKnown(record, report.set_node_state())) reports.push_back(report);
    }
    for (const v1::Command& report : reports) Do(report);
  }
  [[nodiscard]] std::vector<v1::Command> Steps() const {
    const Telemetry telemetry{.routing_epoch =
                                  [this](const std::string& id) {
                                    const auto told = told_epochs.find(id);
                                    return told == told_epochs.end() ? 0 : told->second;
                                  },
                              .now = Now(),
                              .wall_now = base::FromUnixMs(now_ms + skew_ms),
                              .ages = &ages};
    return NextSteps(machine, telemetry, config);
  }
  void Tick() {
    now_ms += 1000;
    NodesReport();
    for (const v1::Command& step : Steps()) {
      if (Do(step).code() != 0) wrong = "a step is refused";
    }
  }
  [[nodiscard]] bool AllEnded() const {
    for (const v1::Plan& plan : machine.plans()) {
      if (!HasEnded(plan)) return false;
    }
    return true;
  }
  // Returns false when the plans have not ended after so many ticks.
  bool RunToTheEnd(int ticks = 300) {
    for (int i = 0; i < ticks && !AllEnded(); ++i) Tick();
    for (int i = 0; i < 3; ++i) Tick();
    return AllEnded();
  }

  static v1::Move MoveOf(const std::string& id, const std::string& pool,
                         const std::string& set = "") {
    v1::Move move;
    move.set_node_id(id);
    move.mutable_to()->set_pool(pool);
    move.mutable_to()->set_workflow_set(set);
    return move;
  }
  // Returns the reason of the refusal, or nothing when the plan has begun.
  std::string Begin(const std::vector<v1::Move>& moves, int confirm_within_s = 0,
                    std::uint64_t base_revision = 0) {
    v1::Plan plan;
    plan.mutable_moves()->Add(moves.begin(), moves.end());
    plan.set_base_revision(base_revision);
    plan.set_actor(actor);
    plan.set_reason("because");
    if (confirm_within_s > 0) {
      plan.set_confirm_by_unix_ms(now_ms + skew_ms + confirm_within_s * 1000);
      plan.set_confirm_within_ms(confirm_within_s * 1000);
    }
    const absl::StatusOr<v1::Plan> complete = CompletePlan(machine, plan);
    if (!complete.ok()) return base::GetReason(complete.status()).reason;
    v1::Command command;
    *command.mutable_start_plan()->mutable_plan() = *complete;
    return Do(command).reason();
  }
  std::string Decide(v1::DecidePlan::Decision decision) {
    v1::Command command;
    command.mutable_decide_plan()->set_plan_id(Last().plan_id());
    command.mutable_decide_plan()->set_decision(decision);
    command.mutable_decide_plan()->set_actor("operator:test");
    return Do(command).reason();
  }
  [[nodiscard]] const v1::Plan& Last() const { return machine.plans().back(); }
  [[nodiscard]] const v1::Node& NodeOf(const std::string& id) const {
    return machine.nodes().at(id).node();
  }
  // Where the instance is: "a", "far b", or "-" when it is idle.
  [[nodiscard]] std::string At(const std::string& id) const {
    const v1::Node& node = NodeOf(id);
    const std::string set = node.workflow_set() == "default" ? "" : node.workflow_set() + " ";
    return set + (node.assignment().has_stage() ? node.assignment().stage().stage() : "-");
  }
  [[nodiscard]] bool ReplaysAlike() const {
    StateMachine other;
    for (const v1::Command& command : log) other.Apply(other.applied_index() + 1, command, version);
    StateMachine restored;
    return other.Serialize() == machine.Serialize() && restored.Restore(other.Serialize()).ok() &&
           restored.Serialize() == machine.Serialize();
  }
};

/// Fills the set "default" with i0 a, i1 b, i2 a, i3 b, i4 a, and the set "far" with f0 a, f1 b.
/// Each set has a proxy and a database.
inline void FillWorld(PlanWorld& world) {
  world.Do(WorkflowCommand(MakeWorkflow("app", {"a", "b"})));
  for (const char* set : {"default", "far"}) {
    world.Start(absl::StrCat("p-", set), v1::PROXY, set);
    world.Start(absl::StrCat("d-", set), v1::DATABASE, set);
  }
  for (const char* id : {"i0", "i1", "i2", "i3", "i4"}) world.Start(id, v1::INSTANCE);
  for (const char* id : {"f0", "f1"}) world.Start(id, v1::INSTANCE, "far");
  world.NodesReport();
}

}  // namespace onepiece::nodemanager
