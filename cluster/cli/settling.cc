#include "cluster/cli/settling.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/client/client.h"
#include "cluster/client/cluster_notes.h"
#include "cluster/workflow/pool.h"

namespace onepiece::cli {
namespace {

// The device is left out, because a pool's settings may ask for another one than its stages.
workflow::PoolKey PoolWithoutDevice(const v1::StageSpec& stage) {
  workflow::PoolKey key = workflow::PoolOf(stage);
  key.device.clear();
  return key;
}

// Whether the assignment is one that the present workflows lead to.
bool FollowsWorkflows(const v1::Assignment& assignment, const v1::Cluster& cluster) {
  for (int i = 0; i < assignment.app_ids_size(); ++i) {
    const auto app =
        std::ranges::find(cluster.workflows(), assignment.app_ids(i), &v1::Workflow::app_id);
    if (app == cluster.workflows().end()) return false;
    const auto stage =
        std::ranges::find(app->stages(), assignment.stage().stage(), &v1::StageSpec::stage);
    if (stage == app->stages().end()) return false;
    if (PoolWithoutDevice(*stage) != PoolWithoutDevice(assignment.stage())) return false;
    if (i < assignment.models_size() && assignment.models(i) != stage->model()) return false;
  }
  return true;
}

// What an instance has not done yet. Empty: nothing.
std::string MissingOf(const v1::Node& node, const v1::Cluster& cluster) {
  const std::string& stage = node.assignment().stage().stage();
  switch (node.activity()) {
    case v1::LOADING:
      return absl::StrCat(node.node_id(), " loads ", stage);
    case v1::DRAINING:
      return absl::StrCat(node.node_id(), " drains");
    case v1::QUARANTINED:
      return absl::StrCat(node.node_id(), " could not load ", stage, ": ", node.detail());
    case v1::IDLE:
      return stage.empty() ? "" : absl::StrCat(node.node_id(), " has not begun ", stage);
    default:
      break;
  }
  if (stage.empty() || FollowsWorkflows(node.assignment(), cluster)) return "";
  return absl::StrCat(node.node_id(), " still serves ", stage, " as it was");
}

}  // namespace

std::vector<std::string> WhatIsMissing(const v1::Cluster& cluster, const v1::Elasticity& elasticity,
                                       std::uint64_t revision) {
  std::vector<std::string> missing;
  if (cluster.config_revision() < revision) {
    missing.push_back(absl::StrCat("the cluster has revision ", cluster.config_revision(),
                                   " of the configuration"));
  }
  for (const client::UnservedStage& unserved : client::UnservedStages(cluster)) {
    missing.push_back(absl::StrCat(
        "no instance serves stage ", unserved.stage, " of application ", unserved.app_id,
        unserved.workflow_set == "default" ? "" : " in set " + unserved.workflow_set));
  }
  for (const v1::Plan& plan : elasticity.plans()) {
    if (!client::HasSettled(plan)) {
      missing.push_back(
          absl::StrCat("plan ", plan.plan_id(), " is ", v1::Plan::State_Name(plan.state())));
    }
  }
  for (const v1::Node& node : cluster.nodes()) {
    if (node.role() != v1::INSTANCE || node.state() != v1::Node::READY) continue;
    if (std::string of_node = MissingOf(node, cluster); !of_node.empty())
      missing.push_back(std::move(of_node));
  }
  return missing;
}

}  // namespace onepiece::cli
