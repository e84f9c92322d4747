// Tests that a recording of a cluster can be replayed: `onepiece simulate --trace`.
#include "nodemanager/simulator/recorded.h"

#include <QTemporaryDir>
#include <QtTest>

#include "cluster/base/status.h"
#include "cluster/history/recorder.h"
#include "nodemanager/simulator/simulation.h"
#include "tests/test_main.h"

namespace onepiece::simulator {
namespace {

constexpr std::int64_t kStart = 1'800'000'000'000;
constexpr int kJobs = 100, kTicks = 260;

int ArrivalOf(int job) { return 10 + 2 * job; }
int StepsOf(int job) { return job % 2 == 0 ? 10 : 30; }
int EndOf(int job) { return ArrivalOf(job) + 1 + StepsOf(job) / 10; }

v1::Workflow Flow() {
  v1::Workflow flow;
  flow.set_app_id("wan");
  v1::ParameterSpec& steps = *flow.add_parameters();
  steps.set_name("steps");
  steps.set_type(v1::ParameterSpec::INTEGER);
  for (const char* name : {"encode", "diffusion"}) {
    v1::StageSpec& stage = *flow.add_stages();
    stage.set_stage(name);
    stage.set_plugin("p");
  }
  flow.mutable_stages(1)->add_cost("steps");
  return flow;
}

// Instance 0 encodes, a second for each job. Instances 1 and 2 take turns to compute ten steps a
// second. The counts are those after `tick` seconds.
v1::Node InstanceAt(int index, int tick) {
  v1::Node node;
  node.set_node_id("instance-" + std::to_string(index));
  node.set_role(v1::INSTANCE);
  node.set_incarnation(7);
  node.set_state(v1::Node::READY);
  node.set_workflow_set("default");
  const bool encodes = index == 0;
  *node.mutable_assignment()->mutable_stage() = Flow().stages(encodes ? 0 : 1);
  v1::NodeLoad& load = *node.mutable_load();
  load.set_workers(1);
  load.set_sample_unix_ms(kStart + 1000 * tick);
  v1::StageLoad& stage = *load.add_stages();
  stage.set_app_id("wan");
  stage.set_stage(encodes ? "encode" : "diffusion");
  stage.set_load_s(encodes ? 3 : 20);
  for (int job = 0; job < kJobs; ++job) {
    if (!encodes && job / 2 % 2 != index - 1) continue;
    if ((encodes ? ArrivalOf(job) + 1 : EndOf(job)) > tick) continue;
    const double seconds = encodes ? 1 : StepsOf(job) / 10;
    stage.set_jobs(stage.jobs() + 1);
    stage.set_units(stage.units() + (encodes ? 1 : StepsOf(job)));
    stage.set_compute_s(stage.compute_s() + seconds);
    stage.set_compute_squares_s2(stage.compute_squares_s2() + seconds * seconds);
  }
  return node;
}

session::JobList JobsAt(int tick) {
  session::JobList list;
  for (int number = kJobs - 1; number >= 0; --number) {
    if (ArrivalOf(number) > tick) continue;
    auto job = std::make_shared<v1::Job>();
    job->set_uid("job-" + std::to_string(1000 + number));
    job->set_name("jobs/" + job->uid());
    job->set_app_id("wan");
    job->mutable_create_time()->set_seconds(kStart / 1000 + ArrivalOf(number));
    (*job->mutable_parameters()->mutable_fields())["steps"].set_number_value(StepsOf(number));
    job->set_state(EndOf(number) <= tick ? v1::Job::SUCCEEDED : v1::Job::RUNNING);
    if (EndOf(number) <= tick) job->mutable_end_time()->set_seconds(kStart / 1000 + EndOf(number));
    list.jobs.push_back({job, session::Certainty::kKnown});
  }
  return list;
}

template <typename T>
session::Part<T> PartOf(T value, std::int64_t at_ms) {
  return {std::make_shared<const T>(std::move(value)), at_ms, ""};
}

session::Snapshot SnapshotAt(int tick, bool with_workflow = true) {
  session::Snapshot snapshot;
  snapshot.at_ms = kStart + 1000 * tick;
  v1::Cluster cluster;
  cluster.set_cluster_id("recorded");
  if (with_workflow) *cluster.add_workflows() = Flow();
  for (int i = 0; i < 3; ++i) *cluster.add_nodes() = InstanceAt(i, tick);
  for (int i = 0; i < 2; ++i) {
    v1::Node& proxy = *cluster.add_nodes();
    proxy.set_node_id("proxy-" + std::to_string(i));
    proxy.set_role(v1::PROXY);
    proxy.set_state(v1::Node::READY);
    proxy.set_workflow_set("default");
  }
  snapshot.cluster = PartOf(std::move(cluster), snapshot.at_ms);
  v1::Elasticity elasticity;
  elasticity.set_window_s(60);
  v1::PoolStatus& pool = *elasticity.add_pools();
  pool.set_workflow_set("default");
  pool.set_pool("diffusion/p");
  pool.set_min_instances(1);
  pool.set_max_instances(5);
  snapshot.elasticity = PartOf(std::move(elasticity), snapshot.at_ms);
  snapshot.jobs = PartOf(JobsAt(tick), snapshot.at_ms);
  return snapshot;
}

void Record(const std::string& path, int ticks, bool with_workflow = true) {
  auto recorder = history::Recorder::Open(path, {.keep_free_bytes = 0});
  QVERIFY(recorder.ok());
  session::LinkStatus link;
  link.link = session::Link::kLive;
  for (int tick = 0; tick < ticks; ++tick)
    QVERIFY((*recorder)->Record(SnapshotAt(tick, with_workflow), link).ok());
}

}  // namespace

class RecordedTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void AClustersRecording_IsACase() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("cluster.rec").toStdString();
    Record(path, kTicks);
    const auto read = ReadRecording(path);
    QVERIFY2(read.ok(), base::Message(read.status()).c_str());
    QCOMPARE(read->arrivals.size(), std::size_t{kJobs});
    for (int job = 0; job < kJobs; ++job) {
      QCOMPARE(read->arrivals[job].time_s, static_cast<double>(ArrivalOf(job)));
      QCOMPARE(read->arrivals[job].units, StepsOf(job) / 20.0);
    }
    QCOMPARE(read->done, std::uint64_t{kJobs});
    QCOMPARE(read->mean_latency_s, 3.0);
    const v1::SimulationProfile& profile = read->profile;
    QCOMPARE(profile.apps_size(), 1);
    QCOMPARE(profile.apps(0).stages_size(), 2);
    QCOMPARE(profile.apps(0).stages(0).seconds_per_unit(), 1.0);
    QCOMPARE(profile.apps(0).stages(1).seconds_per_unit(), 2.0);
    // All of its spread comes from the steps.
    QVERIFY(profile.apps(0).stages(1).variation() < 1e-6);
    QCOMPARE(profile.pools(1).load_s(), 20.0);
    QCOMPARE(profile.pools(1).max_instances(), 5);
    QCOMPARE(profile.settings().placement(), std::string("encode/p=1,diffusion/p=2"));
    QCOMPARE(profile.settings().devices(), 3);
    QCOMPARE(profile.settings().proxies(), 2);
    QCOMPARE(profile.settings().elasticity().window_s(), 60.0);
    QVERIFY(!read->taken.empty() && !read->missing.empty());
  }

  void Replayed_ItIsAsQuickAsItWas() {
    const QTemporaryDir dir;
    const std::string path = dir.filePath("cluster.rec").toStdString();
    Record(path, kTicks);
    const RecordedCase read = *ReadRecording(path);
    v1::SimulationConfig given = read.profile.settings();
    given.set_admission(false);
    const v1::SimulationConfig settings = *CompleteSettings(given);
    const System system = *MakeDisaggregated(read.profile, settings);
    const auto result =
        Simulate(system, settings, read.arrivals,
                 {.policy = "static", .placement = *StartPlacement(system, settings.placement())});
    QVERIFY2(result.ok(), base::Message(result.status()).c_str());
    QCOMPARE(result->done, std::uint64_t{kJobs});
    // The simulator scales the encoder's second by the job's units too.
    QVERIFY2(std::abs(result->latency.mean - read.mean_latency_s) < 0.1 * read.mean_latency_s,
             qPrintable(QString::number(result->latency.mean)));
  }

  void ShortRecordings_SayWhatTheyLack() {
    const QTemporaryDir dir;
    const std::string before = dir.filePath("before.rec").toStdString();
    Record(before, 10);  // No job has come yet.
    QCOMPARE(ReadRecording(before).status().code(), absl::StatusCode::kFailedPrecondition);
    const std::string empty = dir.filePath("empty.rec").toStdString();
    Record(empty, 10, false);
    const auto nothing = ReadRecording(empty);
    QCOMPARE(base::GetReason(nothing.status()).reason, std::string("NOTHING_RECORDED"));
    QVERIFY(!ReadRecording(dir.filePath("none.rec").toStdString()).ok());
  }
};

}  // namespace onepiece::simulator

ONEPIECE_TEST(onepiece::simulator::RecordedTest)
#include "recorded_test.moc"
