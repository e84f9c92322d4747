#include "tests/gui/models/scene.h"

#include <algorithm>
#include <array>
#include <utility>

namespace onepiece::testing {
namespace {

constexpr std::array<const char*, 3> kStages = {"text_encoder", "diffusion", "vae_decode"};
constexpr int kActiveJobs = 16;
constexpr int kSteps = 50;

std::string PoolId(int stage) {
  return std::string(kStages.at(static_cast<std::size_t>(stage))) + "/wan/wan-14b";
}

/// The stage of an instance. One instance in eight encodes, five diffuse and two decode.
int StageOf(int i) { return i % 8 == 0 ? 0 : i % 8 < 6 ? 1 : 2; }

/// A value that goes up and down between 0 and 1. It is exact in every build.
double Wave(std::int64_t tick, int phase, int period) {
  const auto at = static_cast<int>((tick + phase) % period);
  return at * 2 < period ? 2.0 * at / period : 2.0 - 2.0 * at / period;
}

void SetTime(google::protobuf::Timestamp& time, std::int64_t unix_ms) {
  time.set_seconds(unix_ms / 1000);
  time.set_nanos(static_cast<int>(unix_ms % 1000) * 1'000'000);
}

std::string Number(const char* name, int i) { return name + std::to_string(i + 1); }

}  // namespace

std::string HostileText(int kind) {
  switch (kind % 7) {
    case 0:
      return "<b>bold</b><img src=x>&amp;";
    case 1:
      return "a\xE2\x80\xAEtxt.exe\xE2\x81\xA6";  // Right-to-left override, isolate.
    case 2:
      return "line\nnext\ttab\x07\x1B[31mred\x7F";
    case 3:
      return "%1 %n %s %%20 {value} \\u0000";
    case 4:
      return "no utf-8 \xFF\xFE\xC3(";
    case 5:
      return std::string(10'000, 'W');
    default:
      return "\xE2\x80\x8B\xF0\x9F\x92\xA9\xCC\x81\xCC\x82\xCC\x83 ../../etc/passwd";
  }
}

session::LinkStatus LiveLink(std::int64_t now_ms) {
  session::LinkStatus link;
  link.link = session::Link::kLive;
  link.since_ms = now_ms - 60'000;
  link.last_heard_ms = now_ms;
  return link;
}

Scene::Scene(SceneOptions options) : options_(options) {
  auto snapshot = std::make_shared<session::Snapshot>();
  snapshot->at_ms = options_.at_ms;
  snapshot->cluster = Now(MakeCluster());
  snapshot->elasticity = Now(MakeElasticity());
  snapshot->rings = Now(MakeRings());
  session::JobList jobs;
  jobs.jobs.reserve(static_cast<std::size_t>(options_.jobs));
  for (int i = options_.jobs; i-- > 0;) {
    jobs.jobs.push_back(
        {std::make_shared<const v1::Job>(MakeJob(i, i >= options_.jobs - kActiveJobs))});
  }
  snapshot->jobs = Now(std::move(jobs));
  snapshot->databases = Now(MakeDatabases());
  snapshot->replicas = Now(MakeReplicas());
  snapshot->audit = Now(MakeAudit());
  snapshot->alerts = Now(MakeAlerts());
  v1::ListPlansResponse plans;
  for (int i = 0; i < options_.plans; ++i) *plans.add_plans() = MakePlan(i);
  snapshot->plans = Now(std::move(plans));
  snapshot_ = std::move(snapshot);
}

std::shared_ptr<const session::Snapshot> Scene::Step(int ticks) {
  for (int i = 0; i < ticks; ++i) {
    ++tick_;
    auto next = std::make_shared<session::Snapshot>(*snapshot_);
    next->at_ms += kTickMs;
    options_.at_ms = next->at_ms;
    // As in the product, a snapshot has the same cluster with other loads.
    v1::Cluster cluster = *next->cluster.value;
    for (int node = 0; node < options_.nodes; ++node) {
      SetLoad(*cluster.mutable_nodes(node), node);
    }
    next->cluster = Now(std::move(cluster));
    next->rings = Now(MakeRings());
    next->jobs = Now(NextJobs());
    next->databases.as_of_ms = next->replicas.as_of_ms = next->at_ms;
    next->audit.as_of_ms = next->plans.as_of_ms = next->alerts.as_of_ms = next->at_ms;
    if (tick_ % 10 == 0) {
      next->elasticity = Now(MakeElasticity());
      next->databases = Now(MakeDatabases());
    }
    snapshot_ = std::move(next);
  }
  return snapshot_;
}

template <typename T>
session::Part<T> Scene::Now(T value) const {
  return {std::make_shared<const T>(std::move(value)), options_.at_ms, {}};
}

std::string Scene::Text(std::string_view plain, int kind) const {
  if (!options_.hostile) return std::string(plain);
  return std::string(plain) + " " + HostileText(kind);
}

void Scene::MakeServices(v1::Cluster& cluster) const {
  const auto add = [&](v1::Role role, const std::string& id, int port) {
    v1::Node& node = *cluster.add_nodes();
    node.set_node_id(id);
    node.set_role(role);
    node.set_state(v1::Node::READY);
    node.set_address("10.0.1.1:" + std::to_string(port));
    node.set_workflow_set(role == v1::NODE_MANAGER ? "" : "default");
    node.set_incarnation(static_cast<std::uint64_t>(port));
    node.set_pid(port);
    SetTime(*node.mutable_last_report_time(), options_.at_ms - 200);
    return &node;
  };
  for (int i = 0; i < options_.replicas; ++i) {
    add(v1::NODE_MANAGER, Number("nodemanager-", i), 7000 + i);
  }
  for (int i = 0; i < 2; ++i) {
    v1::Demand& demand =
        *add(v1::PROXY, Number("proxy-", i), 8000 + i)->mutable_load()->add_demands();
    demand.set_app_id("t2v");
    demand.set_admitted(static_cast<std::uint64_t>(options_.jobs));
    demand.set_rejected(static_cast<std::uint64_t>(i * 3));
  }
  for (int i = 0; i < options_.databases; ++i) {
    add(v1::DATABASE, Number("database-", i), 9000 + i);
  }
}

std::string Scene::InstanceId(int i) const { return Text(Number("instance-", i), i); }

v1::Node Scene::Instance(int i) const {
  v1::Node node;
  node.set_node_id(InstanceId(i));
  node.set_role(v1::INSTANCE);
  node.set_state(v1::Node::READY);
  node.set_workflow_set("default");
  node.set_address("10.0.0." + std::to_string(1 + i % 250) + ":5001");
  node.set_incarnation(static_cast<std::uint64_t>(3 + i));
  node.set_pid(4700 + i);
  node.mutable_placement()->set_workflow_set("default");
  const bool idle = i == options_.nodes - 1 && options_.nodes >= 8;
  node.set_activity(idle ? v1::IDLE : v1::SERVING);
  if (!idle) {
    const int stage = StageOf(i);
    node.mutable_placement()->set_pool(PoolId(stage));
    node.mutable_assignment()->set_workflow_set("default");
    v1::StageSpec& spec = *node.mutable_assignment()->mutable_stage();
    spec.set_stage(kStages.at(static_cast<std::size_t>(stage)));
    spec.set_plugin("wan");
    spec.set_model("wan-14b");
    spec.set_threads(1);
    node.mutable_assignment()->add_app_ids("t2v");
  }
  if (options_.hostile) node.set_detail(HostileText(i + 3));
  SetLoad(node, i);
  return node;
}

void Scene::SetLoad(v1::Node& node, int i) const {
  v1::NodeLoad& load = *node.mutable_load();
  const bool idle = node.activity() == v1::IDLE;
  const double busy = idle ? 0 : 0.35 + 0.6 * Wave(tick_, 7 * i, 90);
  load.set_utilization(busy);
  load.set_utilization_source(i < options_.device_nodes && options_.devices > 0 ? v1::SM_ACTIVE
                                                                                : v1::WORKERS);
  load.set_queued_jobs(idle ? 0 : (tick_ + i) % 5);
  load.set_running_jobs(idle ? 0 : 1);
  load.set_workers(2);
  load.set_held_jobs(idle ? 0 : 2 + (tick_ + i) % 5);
  load.set_ring_slots(256);
  load.set_ring_slots_used((3 * tick_ + i) % 40);
  load.set_memory_bytes((std::int64_t{20} + i % 40) << 30);
  load.set_sample_unix_ms(options_.at_ms - 100);
  SetTime(*node.mutable_last_report_time(), options_.at_ms - 200);
  load.clear_stages();
  if (!idle) {
    v1::StageLoad& stage = *load.add_stages();
    stage.set_app_id("t2v");
    stage.set_stage(node.assignment().stage().stage());
    stage.set_jobs(static_cast<std::uint64_t>(100 + tick_ / 10 + i));
    stage.set_compute_s(2.5 * static_cast<double>(stage.jobs()));
    stage.set_queued_s(0.8 * static_cast<double>(stage.jobs()));
    stage.set_transfer_s(0.01 * static_cast<double>(stage.jobs()));
  }
  load.clear_devices();
  for (int device = 0; device < options_.devices && i < options_.device_nodes; ++device) {
    AddDevice(load, i, device);
  }
}

void Scene::AddDevice(v1::NodeLoad& load, int i, int device) const {
  const int number = i * options_.devices + device;
  v1::DeviceLoad& gpu = *load.add_devices();
  gpu.set_device("cuda:" + std::to_string(device));
  gpu.set_product(Text("NVIDIA H100 80GB HBM3", i));
  if (options_.odd_devices && number % 4 == 3) return;
  const bool odd = options_.odd_devices && number % 3 == 2;
  const double busy = load.utilization();
  if (!odd) gpu.set_sm_active(busy);
  gpu.set_kernel_active(busy < 0.02 ? 0 : 1);
  gpu.set_memory_active(busy * 0.6);
  gpu.set_memory_used_bytes(load.memory_bytes());
  gpu.set_memory_bytes(std::int64_t{80} << 30);
  gpu.set_power_w(90 + 600 * busy);
  if (!odd) gpu.set_power_limit_w(700);
  if (!odd) gpu.set_temperature_c(38 + 40 * busy);
}

v1::Cluster Scene::MakeCluster() const {
  v1::Cluster cluster;
  cluster.set_cluster_id("grand-line");
  cluster.set_revision(88'123);
  cluster.set_epoch(41);
  cluster.set_api_version(1);
  cluster.set_server_version("1.0");
  for (int i = 0; i < options_.nodes; ++i) *cluster.add_nodes() = Instance(i);
  MakeServices(cluster);
  v1::Workflow& workflow = *cluster.add_workflows();
  workflow.set_name("workflows/t2v");
  workflow.set_app_id("t2v");
  workflow.set_display_name(Text("Text to video", 0));
  for (const char* name : kStages) {
    v1::StageSpec& stage = *workflow.add_stages();
    stage.set_stage(name);
    stage.set_plugin("wan");
    stage.set_model("wan-14b");
    stage.set_threads(1);
    stage.set_min_instances(1);
  }
  v1::ParameterSpec& prompt = *workflow.add_parameters();
  prompt.set_name("prompt");
  prompt.set_type(v1::ParameterSpec::STRING);
  prompt.set_required(true);
  prompt.set_max_bytes(4096);
  prompt.set_description(Text("What the video shows", 3));
  return cluster;
}

v1::Elasticity Scene::MakeElasticity() const {
  v1::Elasticity elasticity;
  elasticity.set_plan_revision(57);
  elasticity.set_policy("utilization");
  elasticity.set_policy_detail(Text("balanced: nothing to move", 1));
  elasticity.set_window_s(30);
  for (int stage = 0; stage < 3; ++stage) {
    v1::PoolStatus& pool = *elasticity.add_pools();
    pool.set_workflow_set("default");
    pool.set_pool(PoolId(stage));
    pool.add_app_ids("t2v");
    for (int i = 0; i < options_.nodes - (options_.nodes >= 8 ? 1 : 0); ++i) {
      if (StageOf(i) == stage) pool.set_instances(pool.instances() + 1);
    }
    pool.set_min_instances(1);
    pool.set_utilization(0.4 + 0.5 * Wave(tick_ / 10, 5 * stage, 40));
    v1::AppShare& share = *pool.add_shares();
    share.set_app_id("t2v");
    share.set_utilization(pool.utilization());
  }
  v1::AppStatus& app = *elasticity.add_apps();
  app.set_workflow_set("default");
  app.set_app_id("t2v");
  app.set_asked_per_s(1.9);
  app.set_rejected_per_s(0.1);
  app.set_sustainable_per_s(2.2);
  for (int i = 0; i < std::min(options_.plans, 1); ++i) *elasticity.add_plans() = MakePlan(i);
  return elasticity;
}

v1::Plan Scene::MakePlan(int i) const {
  constexpr std::array<v1::Plan::State, 5> kStates = {
      v1::Plan::RUNNING, v1::Plan::DONE, v1::Plan::REVERTED, v1::Plan::FAILED, v1::Plan::DONE};
  const std::int64_t start_ms = SceneOptions().at_ms - std::int64_t{1'200'000} * i - 20'000;
  v1::Plan plan;
  plan.set_plan_id("7f3a00" + std::to_string(10 + i));
  plan.set_state(kStates.at(static_cast<std::size_t>(i) % kStates.size()));
  plan.set_base_revision(static_cast<std::uint64_t>(56 - std::min(i, 50)));
  plan.set_actor(i % 2 == 0 ? "policy:utilization" : "operator:ada");
  plan.set_reason(Text("diffusion is the bottleneck", i));
  plan.set_create_unix_ms(start_ms);
  const bool running = plan.state() == v1::Plan::RUNNING;
  if (!running) plan.set_end_unix_ms(start_ms + 45'000);
  v1::Move& move = *plan.add_moves();
  move.set_node_id(InstanceId(options_.nodes - 1));
  move.set_incarnation(static_cast<std::uint64_t>(2 + options_.nodes));
  move.mutable_from()->set_workflow_set("default");
  move.mutable_from()->set_pool(PoolId(2));
  move.mutable_to()->set_workflow_set("default");
  move.mutable_to()->set_pool(PoolId(1));
  move.set_phase(running                              ? v1::Move::DRAINING
                 : plan.state() == v1::Plan::REVERTED ? v1::Move::REVERTED
                 : plan.state() == v1::Plan::FAILED   ? v1::Move::FAILED
                                                      : v1::Move::DONE);
  move.set_phase_since_unix_ms(start_ms + 4'000);
  if (plan.state() == v1::Plan::FAILED) move.set_detail(Text("model could not be loaded", 4));
  return plan;
}

session::Rings Scene::MakeRings() const {
  session::Rings rings;
  for (int i = 0; i < std::min(options_.rings, options_.nodes + options_.databases); ++i) {
    session::RingEntry ring;
    ring.node_id = i < options_.nodes ? InstanceId(i) : Number("database-", i - options_.nodes);
    ring.incarnation = static_cast<std::uint64_t>(3 + i);
    ring.as_of_ms = options_.at_ms - 50;
    v1::RingHealth& health = ring.health;
    health.set_label(Text("inbox", i));
    health.set_shape(v1::RING_SHAPE_SHARED);
    health.set_generation(1);
    health.set_capacity_bytes(64 << 20);
    health.set_slots(256);
    health.set_used_slots(static_cast<std::uint64_t>((3 * tick_ + i) % 40));
    health.set_used_bytes(health.used_slots() * 180'000);
    health.set_oldest_age_ms(health.used_slots() == 0 ? 0 : 2 + 40 * (i % 7));
    health.set_sleeping(health.used_slots() == 0);
    health.mutable_counters()->set_delivered(static_cast<std::uint64_t>(10'000 + 9 * tick_ + i));
    health.mutable_counters()->set_delivered_bytes(health.counters().delivered() * 180'000);
    health.mutable_counters()->set_stalls(static_cast<std::uint64_t>(i % 11 == 10 ? 3 : 0));
    for (int p = 0; p < 2; ++p) {
      v1::RingProducer& producer = *health.add_producers();
      producer.set_producer_id(static_cast<std::uint64_t>(100 + p));
      producer.set_incarnation(3);
      producer.set_node_id(Number("proxy-", p));
      producer.set_connected(p == 0 || i % 4 != 3);
      producer.set_admissions(1);
      producer.set_delivered(health.counters().delivered() / 2);
      producer.set_last_seen_age_ms(producer.connected() ? 20 : 90'000);
    }
    ring.rates = session::RingRates{90 + i % 10 * 1.5, 16e6, i % 11 == 10 ? 0.2 : 0, 0, 0};
    rings.push_back(std::move(ring));
  }
  std::sort(rings.begin(), rings.end(),
            [](const auto& a, const auto& b) { return a.node_id < b.node_id; });
  return rings;
}

v1::Job Scene::MakeJob(int number, bool active) const {
  std::string digits = std::to_string(number);
  digits.insert(0, digits.size() < 7 ? 7 - digits.size() : 0, '0');
  v1::Job job;
  job.set_uid("job-" + digits);
  job.set_name("jobs/" + job.uid());
  job.set_app_id("t2v");
  job.set_workflow_set("default");
  job.set_stage_count(3);
  const int age = std::max(options_.jobs, number + 1) - number;
  const std::int64_t created_ms = options_.at_ms - std::int64_t{400} * age;
  SetTime(*job.mutable_create_time(), created_ms);
  (*job.mutable_parameters()->mutable_fields())["prompt"].set_string_value(
      Text("a red ball", number));
  if (number % 3 == 0) (*job.mutable_labels())["user"] = Text("ada", number);
  if (active) {
    const bool queued = number % 4 == 3;
    job.set_state(queued ? v1::Job::QUEUED : v1::Job::RUNNING);
    job.set_stage(kStages[queued ? 0 : 1]);
    job.set_stage_index(queued ? 0 : 1);
    job.set_step(queued ? 0 : 1 + 3 * number % (kSteps - 20));
    job.set_steps(kSteps);
    return job;
  }
  job.set_state(number % 41 == 40   ? v1::Job::FAILED
                : number % 29 == 28 ? v1::Job::CANCELLED
                                    : v1::Job::SUCCEEDED);
  SetTime(*job.mutable_end_time(), created_ms + 6'000 + number % 13 * 250);
  if (job.state() == v1::Job::FAILED) {
    job.mutable_error()->set_reason("STAGE_FAILED");
    job.mutable_error()->set_message(Text("diffusion: out of memory", number));
  }
  return job;
}

session::JobList Scene::NextJobs() const {
  session::JobList list = *snapshot_->jobs.value;
  for (std::size_t i = 0; i < list.jobs.size() && i < std::size_t{2} * kActiveJobs; ++i) {
    v1::Job job = *list.jobs[i].job;
    if (job.state() != v1::Job::RUNNING) continue;
    job.set_step(std::min(job.step() + 1, kSteps));
    if (job.step() == kSteps) {
      job.set_state(v1::Job::SUCCEEDED);
      SetTime(*job.mutable_end_time(), options_.at_ms);
    }
    list.jobs[i].job = std::make_shared<const v1::Job>(std::move(job));
  }
  // The oldest job goes, as beyond the bound of a Session.
  if (tick_ % 4 == 0 && !list.jobs.empty()) {
    list.jobs.pop_back();
    const int number = options_.jobs + static_cast<int>(tick_ / 4) - 1;
    list.jobs.insert(list.jobs.begin(), {std::make_shared<const v1::Job>(MakeJob(number, true))});
  }
  return list;
}

session::Databases Scene::MakeDatabases() const {
  session::Databases databases;
  for (int i = 0; i < options_.databases; ++i) {
    session::DatabaseEntry entry;
    entry.node_id = Number("database-", i);
    entry.as_of_ms = options_.at_ms;
    entry.database.set_node_id(entry.node_id);
    entry.database.set_records(options_.jobs + tick_ / 10);
    entry.database.set_results(options_.jobs / 2);
    entry.database.set_result_bytes((std::int64_t{3} + 4 * i) << 30);
    entry.database.set_budget_bytes(std::int64_t{10} << 30);
    entry.database.set_spilled_results(40 * i);
    entry.database.set_spilled_bytes((std::int64_t{2} * i) << 30);
    entry.database.set_spill_budget_bytes(std::int64_t{64} << 30);
    entry.database.set_fetched(options_.jobs / 4);
    entry.database.set_expired(12);
    entry.database.set_deleted(3);
    entry.database.set_refused(2 * i);
    entry.database.set_copies(2);
    for (int other = 0; other < options_.databases; ++other) {
      if (other == i) continue;
      v1::DatabasePeer& peer = *entry.database.add_peers();
      peer.set_node_id(Number("database-", other));
      peer.set_alive(true);
      peer.mutable_compared_time()->set_seconds(options_.at_ms / 1000 - 30);
      peer.set_waiting_records(7 * i);
    }
    databases.push_back(std::move(entry));
  }
  return databases;
}

session::Replicas Scene::MakeReplicas() const {
  session::Replicas replicas;
  for (int i = 0; i < options_.replicas; ++i) {
    session::ReplicaEntry entry;
    entry.name = Number("nodemanager-", i);
    entry.address = "10.0.1.1:" + std::to_string(7000 + i);
    v1::ReplicaStatus& status = entry.status.emplace();
    status.set_cluster_id("grand-line");
    status.set_name(entry.name);
    status.set_address(entry.address);
    status.set_replica(static_cast<std::uint64_t>(101 + i));
    status.set_role(i == 0 ? v1::ReplicaStatus::LEADER : v1::ReplicaStatus::FOLLOWER);
    status.set_health(v1::ReplicaStatus::OK);
    status.set_health_detail(options_.hostile ? HostileText(i) : "");
    status.set_round(12);
    status.set_leader("nodemanager-1");
    status.set_leader_address("10.0.1.1:7000");
    status.set_lease(i == 0);
    status.set_first_slot(80'001);
    status.set_chosen(88'123);
    status.set_last_slot(88'123);
    status.set_applied(static_cast<std::uint64_t>(88'123 - 2 * i));
    status.set_snapshot(80'000);
    status.set_state_hash(0x1234'abcd);
    status.set_version(1);
    status.set_common_version(1);
    status.set_group(5);
    for (int s = 0; s < options_.replicas; ++s) {
      v1::Seat& seat = *status.mutable_members()->add_seats();
      seat.set_name(Number("nodemanager-", s));
      seat.set_address("10.0.1.1:" + std::to_string(7000 + s));
      seat.set_replica(static_cast<std::uint64_t>(101 + s));
    }
    replicas.push_back(std::move(entry));
  }
  return replicas;
}

session::Audit Scene::MakeAudit() const {
  constexpr std::array<std::array<const char*, 3>, 5> kRows = {
      {{"start_plan", "7f3a0010", "policy:utilization: diffusion is the bottleneck"},
       {"set_hold", "off", "operator:ada: load test is over"},
       {"end_plan", "7f3a0011", "DONE"},
       {"register_node", "instance-8", "10.0.0.8:5001"},
       {"set_pool_limits", "default diffusion/wan/wan-14b", "operator:ada: 2 to 6"}}};
  session::Audit audit;
  for (int i = 0; i < options_.audit; ++i) {
    const auto& row = kRows.at(static_cast<std::size_t>(i) % kRows.size());
    v1::AuditEntry entry;
    entry.set_revision(static_cast<std::uint64_t>(88'123 - 3 * i));
    entry.set_time_unix_ms(options_.at_ms - 20'000 - std::int64_t{37'000} * i);
    entry.set_action(row[0]);
    entry.set_subject(Text(row[1], i));
    entry.set_detail(Text(row[2], i + 1));
    audit.push_back(std::move(entry));
  }
  return audit;
}

session::Alerts Scene::MakeAlerts() const {
  using State = session::Alert::State;
  constexpr std::array<State, 5> kStates = {State::kFiring, State::kFiring, State::kPending,
                                            State::kNoData, State::kResolved};
  session::Alerts alerts;
  for (int i = 0; i < options_.alerts; ++i) {
    session::Alert alert;
    alert.rule = i % 2 == 0 ? "ring-stuck" : "pool-overloaded";
    alert.entity = i % 2 == 0 ? "ring/" + InstanceId(i) : "pool/default/" + PoolId(1);
    alert.id = alert.rule + "/" + alert.entity + (i < 10 ? "" : "#" + std::to_string(i));
    alert.state = kStates.at(static_cast<std::size_t>(i) % kStates.size());
    alert.severity =
        i == 0 ? session::Alert::Severity::kCritical : session::Alert::Severity::kWarning;
    alert.since_ms = options_.at_ms - std::int64_t{61'000} * (i + 1);
    alert.text = Text("its oldest message waits for 12 s and nothing is taken out", i);
    alert.value = 12.0 + i;
    alert.threshold = 5;
    if (i == 1) alert.acknowledged_by = Text("ada", i);
    alerts.push_back(std::move(alert));
  }
  return alerts;
}

}  // namespace onepiece::testing
