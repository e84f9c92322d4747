// Snapshots for tests, with something in every part.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::history {

inline constexpr std::int64_t kStart = 1'800'000'000'000;  ///< A multiple of ten minutes.

inline session::LinkStatus LinkOf(session::Link link, const std::string& detail = "") {
  session::LinkStatus status;
  status.link = link;
  status.detail = detail;
  return status;
}
inline const session::LinkStatus kLiveLink = LinkOf(session::Link::kLive);

template <typename T>
session::Part<T> PartOf(T value, std::int64_t as_of_ms) {
  return {std::make_shared<const T>(std::move(value)), as_of_ms, ""};
}

/// `tick` counts seconds since kStart. Every tick has other numbers.
inline v1::Node InstanceAt(int i, int tick) {
  v1::Node node;
  node.set_node_id("instance-" + std::to_string(i));
  node.set_role(v1::INSTANCE);
  node.set_incarnation(0x9000'0000'0000'0001 + static_cast<std::uint64_t>(i));
  node.set_state(v1::Node::READY);
  node.set_activity(v1::SERVING);
  node.mutable_placement()->set_pool("diffusion/wan/tiny");
  node.mutable_last_report_time()->set_seconds(kStart / 1000 + tick);
  node.mutable_last_report_time()->set_nanos(1000 * tick + i);
  v1::NodeLoad& load = *node.mutable_load();
  load.set_utilization(0.5 + 0.001 * tick + 0.01 * i);
  load.set_queued_jobs(tick % 7);
  load.set_running_jobs(i);
  load.set_memory_bytes(int64_t{1'000'000'007} * (tick + 1));
  load.set_sample_unix_ms(kStart + 1000 * tick + 13);
  load.set_utilization_source(v1::SM_ACTIVE);
  for (const char* stage : {"text_encode", "diffusion"}) {
    v1::StageLoad& stage_load = *load.add_stages();
    stage_load.set_app_id("wan");
    stage_load.set_stage(stage);
    stage_load.set_jobs(static_cast<std::uint64_t>(3 * tick + i));
    stage_load.set_compute_s(0.1 * tick);
    for (int bucket = 0; bucket < 21; ++bucket)
      stage_load.add_compute_buckets(bucket == tick % 21 ? 1 : 0);
  }
  v1::DeviceLoad& device = *load.add_devices();
  device.set_device("cuda:0");
  device.set_product("NVIDIA H100 80GB HBM3");
  device.set_sm_active(0);                                      // Present, with the value 0.
  if (tick % 3 != 0) device.set_temperature_c(40 + tick % 30);  // Absent in every third tick.
  return node;
}

inline v1::Cluster ClusterAt(int nodes, int tick) {
  v1::Cluster cluster;
  cluster.set_cluster_id("pirates");
  cluster.set_revision(77);
  cluster.set_api_version(3);
  for (int i = 0; i < nodes; ++i) *cluster.add_nodes() = InstanceAt(i, tick);
  v1::Workflow& workflow = *cluster.add_workflows();
  workflow.set_app_id("wan");
  workflow.add_stages()->set_stage("text_encode");
  workflow.add_stages()->set_stage("diffusion");
  return cluster;
}

inline session::Rings RingsAt(int nodes, int tick) {
  session::Rings rings;
  for (int i = 0; i < nodes; ++i) {
    session::RingEntry ring;
    ring.node_id = "instance-" + std::to_string(i);
    ring.incarnation = 0x9000'0000'0000'0001;
    ring.health.set_label("ring");
    ring.health.set_capacity_bytes(64 << 20);
    ring.health.set_used_slots(static_cast<std::uint64_t>(tick % 5));
    ring.health.set_slots(256);
    ring.health.set_sleeping(tick % 2 == 0);
    ring.health.mutable_counters()->set_delivered(static_cast<std::uint64_t>(1000 + 9 * tick));
    v1::RingProducer& producer = *ring.health.add_producers();
    producer.set_producer_id(0xfedc'ba98'7654'3210);
    producer.set_node_id("proxy-1");
    producer.set_connected(true);
    producer.set_delivered(static_cast<std::uint64_t>(tick));
    ring.as_of_ms = kStart + 1000 * tick - 40;
    if (tick > 0) ring.rates = session::RingRates{9, 9000.5, 0, 0, 0};
    rings.push_back(ring);
  }
  return rings;
}

inline std::shared_ptr<const v1::Job> JobAt(int i, v1::Job::State state, int step = 0) {
  auto job = std::make_shared<v1::Job>();
  job->set_uid("job-" + std::to_string(1000 + i));
  job->set_name("jobs/" + job->uid());
  job->set_app_id("wan");
  job->set_state(state);
  job->set_stage("diffusion");
  job->set_step(step);
  job->set_steps(50);
  job->mutable_create_time()->set_seconds(kStart / 1000 + i);
  (*job->mutable_parameters()->mutable_fields())["prompt"].set_string_value("a red ball");
  (*job->mutable_labels())["user"] = "ada";
  return job;
}

/// The jobs of a tick, newest first.
inline session::JobList JobsAt(int tick) {
  session::JobList list;
  list.jobs.push_back({JobAt(2, v1::Job::QUEUED), session::Certainty::kReconciling});
  list.jobs.push_back({JobAt(1, v1::Job::RUNNING, tick % 50), session::Certainty::kKnown});
  list.jobs.push_back({JobAt(0, v1::Job::SUCCEEDED), session::Certainty::kKnown});
  return list;
}

inline v1::Elasticity ElasticityAt(int tick) {
  v1::Elasticity elasticity;
  elasticity.set_plan_revision(5);
  elasticity.set_policy("utilization");
  v1::PoolStatus& pool = *elasticity.add_pools();
  pool.set_workflow_set("default");
  pool.set_pool("diffusion/wan/tiny");
  pool.set_instances(3);
  pool.set_utilization(0.25 + 0.001 * tick);
  v1::AppShare& share = *pool.add_shares();
  share.set_app_id("wan");
  share.set_utilization(0.25);
  elasticity.add_pools()->set_pool("encode/wan/tiny");  // A pool that is not measured yet.
  v1::StageCost& cost = *elasticity.add_costs();
  cost.set_app_id("wan");
  cost.set_stage("diffusion");
  cost.set_samples(17);
  cost.add_seconds_per_term(0.5 + 0.001 * tick);
  cost.set_relative_error(0.03);
  return elasticity;
}

inline session::Snapshot SnapshotAt(int tick, int nodes = 3) {
  session::Snapshot snapshot;
  snapshot.at_ms = kStart + std::int64_t{1000} * tick;
  const std::int64_t now = snapshot.at_ms;
  snapshot.cluster = PartOf(ClusterAt(nodes, tick), now - 100);
  snapshot.elasticity = PartOf(ElasticityAt(tick), now - 200);
  snapshot.rings = PartOf(RingsAt(nodes, tick), now);
  snapshot.jobs = PartOf(JobsAt(tick), now - 5);
  session::DatabaseEntry database;
  database.node_id = "database-1";
  database.database.set_node_id("database-1");
  database.database.set_result_bytes(std::int64_t{5} << 30);
  database.as_of_ms = now;
  database.error = "did not answer";
  snapshot.databases = PartOf(session::Databases{database}, now);
  session::ReplicaEntry leader{"nodemanager-1", "10.0.0.1:7000", v1::ReplicaStatus(), ""};
  leader.status->set_role(v1::ReplicaStatus::LEADER);
  leader.status->set_replica(0xffff'ffff'ffff'fff0);
  leader.status->set_applied(static_cast<std::uint64_t>(100 + tick));
  snapshot.replicas =
      PartOf(session::Replicas{leader, {"nodemanager-2", "", std::nullopt, "down"}}, now);
  session::Audit audit(2);
  audit[0].set_revision(9);
  audit[0].set_action("start_plan");
  audit[1].set_revision(8);
  snapshot.audit = PartOf(audit, now);
  snapshot.audit.error = "asked again in 3 s";
  v1::ListPlansResponse plans;
  plans.add_plans()->set_plan_id("7f01");
  plans.add_plans()->set_plan_id("0a02");
  plans.mutable_plans(0)->set_state(v1::Plan::RUNNING);
  snapshot.plans = PartOf(plans, now);
  session::Alert alert;
  alert.id = "ring-stuck/ring/instance-1";
  alert.rule = "ring-stuck";
  alert.entity = "ring/instance-1";
  alert.state = session::Alert::State::kFiring;
  alert.severity = session::Alert::Severity::kCritical;
  alert.since_ms = now - 7;
  alert.value = 21.5;
  alert.text = "wedged";
  snapshot.alerts = PartOf(session::Alerts{alert}, now);
  return snapshot;
}

}  // namespace onepiece::history
