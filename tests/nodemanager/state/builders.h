// Short ways to make the NodeManager's messages in tests.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nodemanager/state/state_machine.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

inline v1::Node MakeNode(const std::string& id, v1::Role role, std::uint64_t incarnation = 1,
                         const std::string& pinned_stage = "") {
  v1::Node node;
  node.set_node_id(id);
  node.set_role(role);
  node.set_incarnation(incarnation);
  node.set_address("127.0.0.1:5000");
  node.set_workflow_set("default");
  node.set_pinned_stage(pinned_stage);
  return node;
}

inline v1::Command RegisterCommand(const v1::Node& node, const std::string& request_id = "") {
  v1::Command command;
  command.set_request_id(request_id);
  command.set_time_unix_ms(1000);
  *command.mutable_register_node() = node;
  return command;
}

inline v1::Command EndCommand(const std::string& id, std::uint64_t incarnation = 1) {
  v1::Command command;
  command.mutable_end_node()->set_node_id(id);
  command.mutable_end_node()->set_incarnation(incarnation);
  command.mutable_end_node()->set_detail("gone");
  return command;
}

inline v1::Command BeginGenerationCommand(std::uint32_t generation) {
  v1::Command command;
  command.set_time_unix_ms(1000);
  command.mutable_begin_generation()->set_generation(generation);
  command.mutable_begin_generation()->set_cause("restore");
  command.mutable_begin_generation()->set_detail("slot 7");
  return command;
}

inline v1::Command StateCommand(const std::string& id, v1::Node::State state,
                                std::uint64_t assignment_epoch = 0, std::uint64_t incarnation = 1) {
  v1::Command command;
  v1::SetNodeState& change = *command.mutable_set_node_state();
  change.set_node_id(id);
  change.set_incarnation(incarnation);
  change.set_state(state);
  change.set_assignment_epoch(assignment_epoch);
  return command;
}

/// A workflow of these stages, all with plug-in "wan" and model "tiny".
inline v1::Workflow MakeWorkflow(const std::string& app_id,
                                 const std::vector<std::string>& stages) {
  v1::Workflow workflow;
  workflow.set_app_id(app_id);
  for (const std::string& stage : stages) {
    v1::StageSpec& spec = *workflow.add_stages();
    spec.set_stage(stage);
    spec.set_plugin("wan");
    spec.set_model("tiny");
  }
  return workflow;
}

inline v1::Command WorkflowCommand(const v1::Workflow& workflow) {
  v1::Command command;
  *command.mutable_apply_workflow() = workflow;
  return command;
}

inline v1::Command StartPlanCommand(const v1::Plan& plan, const std::string& request_id = "") {
  v1::Command command;
  command.set_request_id(request_id);
  *command.mutable_start_plan()->mutable_plan() = plan;
  return command;
}

inline v1::Command AdvanceCommand(const std::string& plan_id, const std::string& node_id,
                                  v1::Move::Phase from, v1::Move::Phase to) {
  v1::Command command;
  v1::AdvanceMove& change = *command.mutable_advance_move();
  change.set_plan_id(plan_id);
  change.set_node_id(node_id);
  change.set_from(from);
  change.set_to(to);
  return command;
}

inline v1::Command DecideCommand(const std::string& plan_id, v1::DecidePlan::Decision decision) {
  v1::Command command;
  v1::DecidePlan& change = *command.mutable_decide_plan();
  change.set_plan_id(plan_id);
  change.set_decision(decision);
  change.set_actor("operator:ann");
  change.set_reason("because");
  return command;
}

inline v1::Command LimitsCommand(const std::string& workflow_set, const std::string& pool,
                                 int least, int most) {
  v1::Command command;
  v1::PoolLimits& limits = *command.mutable_set_pool_limits()->mutable_limits();
  limits.set_workflow_set(workflow_set);
  limits.set_pool(pool);
  limits.set_min_instances(least);
  limits.set_max_instances(most);
  command.mutable_set_pool_limits()->set_actor("operator:ann");
  return command;
}

inline v1::Placement RandomPlacement(std::mt19937_64& random) {
  v1::Placement placement;
  if (random() % 4 == 0) placement.set_workflow_set(random() % 2 == 0 ? "far" : "default");
  if (random() % 3 != 0) placement.set_pool(random() % 2 == 0 ? "a/wan/tiny" : "b/wan/tiny");
  placement.set_pinned(random() % 8 == 0);
  placement.set_removed(random() % 8 == 0);
  return placement;
}

/// A random command about plans, limits or holds, sensible or not. Steps mostly fit a plan of
/// `state`.
inline v1::Command RandomPlanCommand(std::mt19937_64& random, const StateMachine& state) {
  const auto& plans = state.plans();
  const v1::Plan plan =
      plans.empty() ? v1::Plan()
                    : plans[plans.size() - 1 - random() % std::min<std::size_t>(plans.size(), 20)];
  const v1::Move move =
      plan.moves_size() == 0
          ? v1::Move()
          : plan.moves(static_cast<int>(random() % static_cast<std::uint64_t>(plan.moves_size())));
  switch (random() % 10) {
    case 0:
    case 1: {
      v1::Plan made;
      if (random() % 8 == 0) made.set_plan_id(absl::StrCat("plan-", random() % 20));
      if (random() % 8 == 0) made.set_undo_of(plan.plan_id());
      if (random() % 8 == 0) made.set_base_revision(state.plan_revision() - random() % 2);
      if (random() % 2 == 0)
        made.set_confirm_by_unix_ms(static_cast<std::int64_t>(random() % 1000));
      made.set_actor("policy:random");
      for (std::uint64_t i = 0; i <= random() % 2; ++i) {
        v1::Move& added = *made.add_moves();
        added.set_node_id(absl::StrCat("node-", random() % 6));
        const auto known = state.nodes().find(added.node_id());
        if (known != state.nodes().end() && random() % 8 != 0)
          *added.mutable_from() = known->second.node().placement();
        *added.mutable_to() = RandomPlacement(random);
      }
      return StartPlanCommand(made);
    }
    case 2:
      return DecideCommand(plan.plan_id(), static_cast<v1::DecidePlan::Decision>(random() % 3));
    case 3:
      return LimitsCommand("default", random() % 2 == 0 ? "a/wan/tiny" : "b/wan/tiny",
                           static_cast<int>(random() % 4), static_cast<int>(random() % 4));
    case 4: {
      v1::Command command;
      command.mutable_set_hold()->set_active(random() % 2 == 0);
      command.mutable_set_hold()->set_until_unix_ms(static_cast<std::int64_t>(random() % 1000));
      return command;
    }
    default:
      return AdvanceCommand(
          plan.plan_id(), move.node_id(), move.phase(),
          static_cast<v1::Move::Phase>(
              random() % 2 == 0 ? move.phase() + 1 + (random() % 4 == 0 ? 1 : 0) : random() % 8));
  }
}

/// A random command, sensible or not, in a world so small that names collide.
inline v1::Command RandomCommand(std::mt19937_64& random, const StateMachine& state) {
  const std::string id = absl::StrCat("node-", random() % 6);
  const auto known = state.nodes().find(id);
  std::uint64_t incarnation = known == state.nodes().end() ? 2 : known->second.node().incarnation();
  if (random() % 4 == 0) {
    incarnation += random() % 4 - 1;
  } else if (known != state.nodes().end() && !IsAlive(known->second.node())) {
    ++incarnation;
  }
  const auto role = random() % 2 == 0 ? v1::INSTANCE : static_cast<v1::Role>(2 + random() % 3);
  v1::Command command;
  switch (random() % 10) {
    case 0:
    case 1:
      command = RegisterCommand(MakeNode(id, role, incarnation));
      break;
    case 2:
      command = EndCommand(id, incarnation);
      break;
    case 3:
      command =
          StateCommand(id, static_cast<v1::Node::State>(random() % 4), random() % 20, incarnation);
      command.mutable_set_node_state()->set_drained(random() % 2 == 0);
      command.mutable_set_node_state()->set_load_failed(random() % 4 == 0);
      break;
    case 4:
      command = WorkflowCommand(MakeWorkflow(absl::StrCat("app-", random() % 3), {"a", "b"}));
      break;
    case 5:
      command.set_delete_workflow(absl::StrCat("app-", random() % 3));
      break;
    case 6:
    case 7:
    case 8:
      command = RandomPlanCommand(random, state);
      break;
    default: {
      command.mutable_assign()->set_base_revision(state.revision() - random() % 2);
      v1::NodeAssignment& assignment = *command.mutable_assign()->add_assignments();
      assignment.set_node_id(id);
      assignment.set_incarnation(incarnation);
      assignment.mutable_stage()->set_stage("a");
      assignment.add_app_ids("app-0");
      assignment.set_draining(random() % 4 == 0);
      assignment.set_removed(random() % 8 == 0);
      if (random() % 4 == 0) *assignment.mutable_placement() = RandomPlacement(random);
    }
  }
  if (random() % 4 == 0) command.set_request_id(std::to_string(random() % 10));
  command.set_time_unix_ms(static_cast<std::int64_t>(random() % 1000));
  return command;
}

}  // namespace onepiece::nodemanager
