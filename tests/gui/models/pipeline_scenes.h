// Makes snapshots with as many stages and instances as a test wants. Each number is a function of
// the indices of the instance and the stage.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gui/models/pipeline_graph.h"

namespace onepiece::gui {

inline constexpr std::int64_t kSceneMs = 1'800'000'000'000;

inline constexpr std::array<const char*, 4> kStages = {"text_encoder", "diffusion", "upscale",
                                                       "vae_decode"};

/// The pool id of stage number `stage`.
inline std::string ScenePool(int stage) {
  return std::string(kStages.at(static_cast<std::size_t>(stage))) + "/wan/tiny";
}

inline v1::StageSpec SceneSpec(int stage) {
  v1::StageSpec spec;
  spec.set_stage(kStages.at(static_cast<std::size_t>(stage)));
  spec.set_plugin("wan");
  spec.set_model("tiny");
  return spec;
}

inline v1::Workflow SceneWorkflow(const std::string& app, int stages) {
  v1::Workflow workflow;
  workflow.set_app_id(app);
  for (int i = 0; i < stages; ++i) *workflow.add_stages() = SceneSpec(i);
  return workflow;
}

/// The load of an instance that computes `running` of 4 jobs and has finished `jobs` jobs of 3 s
/// each.
inline v1::NodeLoad SceneLoad(double busy, int running, std::uint64_t jobs, const char* stage) {
  v1::NodeLoad load;
  load.set_utilization(busy);
  load.set_utilization_source(v1::SM_ACTIVE);
  load.set_workers(4);
  load.set_running_jobs(running);
  load.set_queued_jobs(running * 2);
  load.set_held_jobs(running * 3);
  load.set_ring_slots(64);
  load.set_ring_slots_used(7);
  load.set_sample_unix_ms(kSceneMs);
  v1::StageLoad& part = *load.add_stages();
  part.set_app_id("wan-t2v");
  part.set_stage(stage);
  part.set_jobs(jobs);
  part.set_compute_s(3.0 * static_cast<double>(jobs));
  part.set_queued_s(0.5 * static_cast<double>(jobs));
  part.set_transfer_s(0.002 * static_cast<double>(jobs));
  for (int i = 0; i < 21; ++i) part.add_compute_buckets(i == 12 ? jobs : 0);  // 2.048 to 4.096 s.
  v1::DeviceLoad& device = *load.add_devices();
  device.set_device("cuda:0");
  device.set_sm_active(busy * 0.9);
  return load;
}

inline v1::Node SceneInstance(const std::string& id, int stage, double busy, int running,
                              const std::string& set = "default") {
  v1::Node node;
  node.set_node_id(id);
  node.set_role(v1::INSTANCE);
  node.set_incarnation(1);
  node.set_workflow_set(set);
  node.set_state(v1::Node::READY);
  node.set_activity(stage < 0 ? v1::IDLE : v1::SERVING);
  node.mutable_last_report_time()->set_seconds(kSceneMs / 1000);
  if (stage >= 0) {
    *node.mutable_assignment()->mutable_stage() = SceneSpec(stage);
    node.mutable_placement()->set_pool(ScenePool(stage));
    *node.mutable_load() =
        SceneLoad(busy, running, 40, kStages.at(static_cast<std::size_t>(stage)));
  }
  return node;
}

inline v1::Node SceneService(const std::string& id, v1::Role role,
                             const std::string& set = "default") {
  v1::Node node;
  node.set_node_id(id);
  node.set_role(role);
  node.set_incarnation(1);
  node.set_workflow_set(set);
  node.set_state(v1::Node::READY);
  node.mutable_last_report_time()->set_seconds(kSceneMs / 1000);
  return node;
}

inline session::RingEntry SceneRing(const std::string& id, std::uint64_t used, double items_per_s) {
  session::RingEntry ring;
  ring.node_id = id;
  ring.incarnation = 1;
  ring.health.set_slots(64);
  ring.health.set_used_slots(used);
  ring.health.set_capacity_bytes(64 << 20);
  ring.health.set_used_bytes(used << 10);
  ring.health.set_oldest_age_ms(used == 0 ? 0 : 12);
  ring.as_of_ms = kSceneMs;
  ring.rates = session::RingRates{items_per_s, items_per_s * 150'000, 0, 0, 0};
  return ring;
}

/// The state of a cluster. A test changes it and then makes a snapshot of it.
struct PipelineScene {
  v1::Cluster cluster;
  v1::Elasticity elasticity;
  session::Rings rings;

  /// Makes `stages` pools of `replicas` instances each, from instance-1 on. The second stage is the
  /// busiest.
  PipelineScene(int stages, int replicas) {
    cluster.set_cluster_id("test");
    *cluster.add_workflows() = SceneWorkflow("wan-t2v", stages);
    *cluster.add_nodes() = SceneService("proxy-1", v1::PROXY);
    *cluster.add_nodes() = SceneService("database-1", v1::DATABASE);
    rings.push_back(SceneRing("database-1", 0, 1.2));
    elasticity.set_window_s(300);
    int number = 0;
    for (int stage = 0; stage < stages; ++stage) {
      v1::PoolStatus& pool = *elasticity.add_pools();
      pool.set_workflow_set("default");
      pool.set_pool(ScenePool(stage));
      pool.set_instances(replicas);
      pool.set_min_instances(1);
      pool.set_utilization(stage == 1 ? 0.97 : 0.2 + 0.1 * stage);
      for (int i = 0; i < replicas; ++i) {
        ++number;
        const std::string id = "instance-" + std::to_string(number);
        const double busy = stage == 1 ? 0.9 + 0.01 * (i % 9) : 0.1 + 0.05 * ((number + i) % 9);
        *cluster.add_nodes() = SceneInstance(id, stage, busy, stage == 1 ? 4 : i % 3);
        rings.push_back(
            SceneRing(id, stage == 1 ? 30 + static_cast<std::uint64_t>(i) : 2, 1.2 / replicas));
      }
    }
  }

  v1::Node& node(const std::string& id) {
    for (v1::Node& node : *cluster.mutable_nodes()) {
      if (node.node_id() == id) return node;
    }
    return *cluster.add_nodes();
  }
  void Erase(const std::string& id) {
    auto& nodes = *cluster.mutable_nodes();
    for (int i = 0; i < nodes.size(); ++i) {
      if (nodes[i].node_id() == id) return nodes.DeleteSubrange(i, 1);
    }
  }
  v1::Move& Plan(v1::Plan::State state, const std::string& id, const std::string& pool) {
    v1::Plan& plan = *elasticity.add_plans();
    plan.set_plan_id("plan-" + id);
    plan.set_state(state);
    v1::Move& move = *plan.add_moves();
    move.set_node_id(id);
    move.mutable_to()->set_pool(pool);
    return move;
  }
  [[nodiscard]] std::shared_ptr<session::Snapshot> At(std::int64_t at_ms = kSceneMs) const {
    auto snapshot = std::make_shared<session::Snapshot>();
    snapshot->at_ms = at_ms;
    snapshot->cluster = {std::make_shared<const v1::Cluster>(cluster), at_ms, ""};
    snapshot->elasticity = {std::make_shared<const v1::Elasticity>(elasticity), at_ms, ""};
    snapshot->rings = {std::make_shared<const session::Rings>(rings), at_ms, ""};
    return snapshot;
  }
};

/// The card with this key. Null if there is none.
inline const PipelineCard* CardOf(const PipelineGraph& graph, const std::string& key) {
  for (const PipelineCard& card : graph.cards) {
    if (card.key == key) return &card;
  }
  return nullptr;
}

inline const PipelineStage* StageNamed(const PipelineGraph& graph, const QString& name,
                                       const std::string& set = "default") {
  for (const PipelineStage& stage : graph.stages) {
    if (stage.name == name && graph.sets.at(static_cast<std::size_t>(stage.set)).name == set) {
      return &stage;
    }
  }
  return nullptr;
}

inline const PipelineEdge* EdgeBetween(const PipelineGraph& graph, const QString& from,
                                       const QString& to) {
  for (const PipelineEdge& edge : graph.edges) {
    if (graph.stages.at(static_cast<std::size_t>(edge.from)).name == from &&
        graph.stages.at(static_cast<std::size_t>(edge.to)).name == to) {
      return &edge;
    }
  }
  return nullptr;
}

}  // namespace onepiece::gui
