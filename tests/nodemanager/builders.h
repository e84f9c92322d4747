// Short ways to make the NodeManager's messages in tests.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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

/// A workflow of the stages named, all of plug-in "wan" and model "tiny".
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

/// Any command, sensible or not, of a small world in which names collide.
inline v1::Command RandomCommand(std::mt19937_64& random, std::uint64_t revision) {
  const std::string id = absl::StrCat("node-", random() % 6);
  const std::uint64_t incarnation = 1 + random() % 3;
  v1::Command command;
  switch (random() % 7) {
    case 0:
    case 1:
      command = RegisterCommand(MakeNode(id, static_cast<v1::Role>(2 + random() % 3), incarnation));
      break;
    case 2:
      command = EndCommand(id, incarnation);
      break;
    case 3:
      command =
          StateCommand(id, static_cast<v1::Node::State>(random() % 4), random() % 20, incarnation);
      break;
    case 4:
      command = WorkflowCommand(MakeWorkflow(absl::StrCat("app-", random() % 3), {"a", "b"}));
      break;
    case 5:
      command.set_delete_workflow(absl::StrCat("app-", random() % 3));
      break;
    default: {
      command.mutable_assign()->set_base_revision(revision - random() % 2);
      v1::NodeAssignment& assignment = *command.mutable_assign()->add_assignments();
      assignment.set_node_id(id);
      assignment.set_incarnation(incarnation);
      assignment.mutable_stage()->set_stage("a");
      assignment.add_app_ids("app-0");
    }
  }
  if (random() % 4 == 0) command.set_request_id(std::to_string(random() % 10));
  command.set_time_unix_ms(static_cast<std::int64_t>(random() % 1000));
  return command;
}

}  // namespace onepiece::nodemanager
