// Short ways to make the NodeManager's messages in tests.
#pragma once

#include <string>
#include <vector>

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

}  // namespace onepiece::nodemanager
