// Tests the simulator against closed forms, and against itself: one seed gives one history.
#include "nodemanager/simulator/simulation.h"

#include <QElapsedTimer>
#include <QtTest>
#include <cmath>

#include "cluster/config/yaml.h"
#include "tests/nodemanager/simulator/profiles.h"
#include "tests/test_main.h"

namespace onepiece::simulator {
namespace {

// The simulator must give what queueing theory says, within the noise of the sample.
void ComparesWithin(double measured, double expected, double share) {
  QVERIFY2(std::abs(measured - expected) <= share * expected,
           qPrintable(QString("%1 measured, %2 expected").arg(measured).arg(expected)));
}

// The mean wait of M/M/c (Erlang C).
double ErlangWait(double arrivals, double seconds, int servers) {
  const double load = arrivals * seconds;
  double term = 1, sum = 1;
  for (int i = 1; i < servers; ++i) sum += term *= load / i;
  term *= load / servers * servers / (servers - load);
  return term / (sum + term) * seconds / (servers - load);
}

// The mean wait of E_c/M/1. σ solves σ = (cλ / (cλ + μ (1 − σ)))^c, and the wait is σ / (μ (1 −
// σ)).
double RoundRobinWait(double arrivals, double seconds, int servers) {
  double sigma = 0.5;
  for (int i = 0; i < 10'000; ++i)
    sigma = std::pow(arrivals / (arrivals + (1 - sigma) / seconds), servers);
  return sigma * seconds / (1 - sigma);
}

void VerifyAddsUp(const SimulationResult& result) {
  QCOMPARE(result.offered, result.accepted + result.rejected);
  QCOMPARE(result.accepted, result.done + result.failed + result.in_flight);
  QVERIFY(result.in_time <= result.done);
  double reserved = 0;
  for (const PoolResult& pool : result.pools) {
    QVERIFY(pool.utilization >= 0 && pool.utilization <= 1 + 1e-9);
    reserved += pool.device_s;
  }
  QVERIFY(std::abs(reserved - result.reserved_device_s) <= 1e-6 * reserved);
}

QString Fingerprint(const SimulationResult& r) {
  return QString("%1 %2 %3 %4 %5 %6 %7 %8")
      .arg(r.offered)
      .arg(r.done)
      .arg(r.refusals)
      .arg(r.moves)
      .arg(r.events)
      .arg(r.latency.mean, 0, 'g', 17)
      .arg(r.latency.max, 0, 'g', 17)
      .arg(r.reserved_device_s, 0, 'g', 17);
}

v1::SimulationProfile Wan() {
  v1::SimulationProfile profile;
  const auto status =
      config::LoadYamlFile(ONEPIECE_SOURCE_DIR "/resources/profiles/wan21-i2v-14b.yaml", &profile);
  if (!status.ok()) qFatal("%s", std::string(status.message()).c_str());
  return profile;
}

// Two applications that share their first stage. Each has a narrow stage of its own, and the demand
// swings.
v1::SimulationProfile Mix() {
  v1::SimulationProfile profile = Chain({0.5, 2}, 5);
  *profile.add_apps() = profile.apps(0);
  profile.mutable_apps(1)->set_app_id("other");
  profile.mutable_apps(1)->mutable_stages(1)->set_pool("s1-other");
  profile.mutable_apps(1)->mutable_stages(1)->set_variation(0.7);
  profile.add_pools()->set_pool("s1-other");
  profile.mutable_pools(2)->set_load_s(5);
  return profile;
}

}  // namespace

class SimulationTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void OneServer_WaitsAsPollaczekAndKhinchineSay_data() {
    QTest::addColumn<double>("variation");
    QTest::newRow("M/D/1") << 0.0;
    QTest::newRow("M/G/1, half") << 0.5;
    QTest::newRow("M/M/1") << 1.0;
    QTest::newRow("M/G/1, wide") << 1.5;
  }
  void OneServer_WaitsAsPollaczekAndKhinchineSay() {
    QFETCH(double, variation);
    v1::SimulationProfile profile = Chain({1});
    profile.mutable_apps(0)->mutable_stages(0)->set_variation(variation);
    const auto settings = Settings(1'000'000, 0.6, 1);
    const System system = *MakeDisaggregated(profile, settings);
    const SimulationResult result = Run(system, settings, "poisson", {1});
    VerifyAddsUp(result);
    ComparesWithin(result.queued.mean, 0.6 * (1 + variation * variation) / 2 / (1 - 0.6), 0.04);
    ComparesWithin(result.pools[0].utilization, 0.6, 0.01);
    ComparesWithin(result.latency.mean, result.queued.mean + 1, 0.02);
  }

  void SeveralWorkers_WaitAsErlangSays() {
    v1::SimulationProfile profile = Chain({1});
    profile.mutable_apps(0)->mutable_stages(0)->set_variation(1);
    profile.mutable_pools(0)->set_workers(4);
    const auto settings = Settings(300'000, 3.2, 1);
    const System system = *MakeDisaggregated(profile, settings);
    const SimulationResult result = Run(system, settings, "poisson", {1});
    ComparesWithin(result.queued.mean, ErlangWait(3.2, 1, 4), 0.05);
  }

  void SeveralInstances_WaitAsRoundRobinDoes() {
    v1::SimulationProfile profile = Chain({1});
    profile.mutable_apps(0)->mutable_stages(0)->set_variation(1);
    const auto settings = Settings(300'000, 2.4, 3);
    const System system = *MakeDisaggregated(profile, settings);
    const SimulationResult result = Run(system, settings, "poisson", {3});
    ComparesWithin(result.queued.mean, RoundRobinWait(2.4, 1, 3), 0.05);
  }

  void Saturated_GoesAtTheRateOfTheSlowestStage_data() {
    QTest::addColumn<QVector<double>>("seconds");
    QTest::addColumn<QVector<int>>("instances");
    QTest::newRow("1, 3") << QVector<double>{1, 3} << QVector<int>{1, 1};
    QTest::newRow("3, 1") << QVector<double>{3, 1} << QVector<int>{1, 1};
    QTest::newRow("1, 3 by three") << QVector<double>{1, 3} << QVector<int>{1, 3};
    QTest::newRow("2, 5, 1") << QVector<double>{2, 5, 1} << QVector<int>{1, 2, 1};
  }
  void Saturated_GoesAtTheRateOfTheSlowestStage() {
    QFETCH(QVector<double>, seconds);
    QFETCH(QVector<int>, instances);
    const std::vector<int> placement(instances.begin(), instances.end());
    const auto settings = Settings(20'000, 3, 8);
    const System system = *MakeDisaggregated(Chain({seconds.begin(), seconds.end()}), settings);
    double narrowest = 1e9;
    for (int s = 0; s < seconds.size(); ++s)
      narrowest = std::min(narrowest, instances[s] / seconds[s]);
    QCOMPARE(RateOf(system, placement), narrowest);
    const SimulationResult result = Run(system, settings, "poisson", placement);
    VerifyAddsUp(result);
    ComparesWithin(result.throughput, narrowest, 0.02);
    QVERIFY(result.in_flight > 0);
  }

  void Unloaded_TakesTheLongestWay() {
    v1::SimulationProfile profile = Chain({1, 2, 4, 8});
    auto& stages = *profile.mutable_apps(0)->mutable_stages();
    stages[1].add_after("s0");
    stages[2].add_after("s0");
    stages[3].add_after("s1");
    stages[3].add_after("s2");
    for (auto& stage : stages) stage.set_transfer_s(0.5);
    const auto settings = Settings(1000, 1, 4);
    const System system = *MakeDisaggregated(profile, settings);
    const auto result = Simulate(system, settings, {{.time_s = 10}},
                                 {.policy = "static", .placement = {1, 1, 1, 1}});
    QCOMPARE(result->done, std::uint64_t{1});
    QCOMPARE(result->latency.max, 1 + 0.5 + 4 + 0.5 + 8 + 0.5);
    QCOMPARE(UnloadedLatency(system, system.apps[0]), result->latency.max);
    QVERIFY(result->queued.max < 1e-3);
  }

  void EveryJob_EndsSomewhere() {
    for (int seed = 1; seed <= 20; ++seed) {
      auto settings = Settings(4000, 1.5, 12);
      settings.set_seed(static_cast<std::uint64_t>(seed));
      settings.set_deadline_s(seed % 2 == 0 ? 12 : 0);
      settings.set_admission(seed % 3 != 0);
      settings.mutable_elasticity()->set_window_s(60);
      const System system = *MakeDisaggregated(Mix(), settings);
      const SimulationResult result =
          Run(system, settings, "bursty", {1, 2, 1}, seed % 5 == 0 ? "static" : "utilization");
      VerifyAddsUp(result);
      QVERIFY(result.done > 0);
      for (const PoolResult& pool : result.pools) QVERIFY(pool.mean_instances >= 1 - 1e-9);
    }
  }

  void OneSeed_OneHistory() {
    auto settings = Settings(4000, 1.5, 12);
    settings.set_admission(true);
    settings.mutable_elasticity()->set_window_s(60);
    const System system = *MakeDisaggregated(Mix(), settings);
    const QString first = Fingerprint(Run(system, settings, "bursty", {1, 2, 1}, "utilization"));
    QCOMPARE(Fingerprint(Run(system, settings, "bursty", {1, 2, 1}, "utilization")), first);
    settings.set_seed(2);
    QVERIFY(Fingerprint(Run(system, settings, "bursty", {1, 2, 1}, "utilization")) != first);
  }

  // Computed by hand, the fused system needs 8 × (3.17 + 207.7 / 8 + 2.22) = 250.82 GPU seconds a
  // job, and the separate stages need 213.09.
  void Wan_SavesWhatTheFormulaSays() {
    auto settings = Settings(200'000, 1, 64);
    settings.set_degree(8);
    const System apart = *MakeDisaggregated(Wan(), settings);
    const System fused = *MakeMonolithic(Wan(), settings);
    ComparesWithin(BoundDeviceSeconds(fused), 250.82, 1e-4);
    ComparesWithin(BoundDeviceSeconds(apart), 213.09, 1e-4);
    ComparesWithin(BoundDeviceSeconds(fused) / BoundDeviceSeconds(apart), 1.177, 1e-3);
    // The fused instances are busy all the time, so they reserve just that.
    const SimulationResult whole = Run(fused, settings, "poisson", {8});
    ComparesWithin(whole.reserved_device_s / (whole.throughput * settings.duration_s()), 250.82,
                   0.01);
    // Encoders and decoders take whole GPUs. 7 instances of 8 GPUs keep one encoder and one decoder
    // busy only in part.
    const SimulationResult split = Run(apart, settings, "poisson", {1, 7, 1});
    ComparesWithin(split.reserved_device_s / (split.throughput * settings.duration_s()),
                   58 * 207.7 / 8 / 7, 0.01);
    ComparesWithin(split.busy_device_s / (split.throughput * settings.duration_s()), 213.09, 0.01);
  }

  void Wan_AtOneDegree_SavesNoTime() {
    auto settings = Settings(1000, 1, 64);
    settings.set_degree(1);
    ComparesWithin(BoundDeviceSeconds(*MakeMonolithic(Wan(), settings)),
                   BoundDeviceSeconds(*MakeDisaggregated(Wan(), settings)), 1e-12);
  }

  // A day of 64 GPUs takes seconds.
  void ADay_TakesSeconds() {
    auto settings = Settings(86'400, 0.2, 64);
    settings.set_degree(8);
    settings.set_admission(true);
    const System system = *MakeDisaggregated(Wan(), settings);
    QElapsedTimer timer;
    timer.start();
    const SimulationResult result =
        Run(system, settings, "diurnal", *BestPlacement(system, 64), "utilization");
    QVERIFY(result.done > 10'000);
    qInfo("%llu events in %lld ms", static_cast<unsigned long long>(result.events),
          static_cast<long long>(timer.elapsed()));
    QVERIFY(timer.elapsed() < 60'000);
  }

  void Interrupted_SaysSo() {
    const auto settings = Settings(1'000'000, 1, 1);
    const System system = *MakeDisaggregated(Chain({0.5}), settings);
    const auto arrivals = *MakeWorkload("poisson", system, settings);
    const auto result =
        Simulate(system, settings, arrivals,
                 {.policy = "static", .placement = {1}, .progress = [](double) { return false; }});
    QCOMPARE(result.status().code(), absl::StatusCode::kCancelled);
  }

  void AnUnknownPolicy_IsRefused() {
    const auto settings = Settings(10, 1, 1);
    const System system = *MakeDisaggregated(Chain({0.5}), settings);
    const auto result =
        Simulate(system, settings, {{.time_s = 1}}, {.policy = "clever", .placement = {1}});
    QCOMPARE(result.status().code(), absl::StatusCode::kNotFound);
  }
};

}  // namespace onepiece::simulator

ONEPIECE_TEST(onepiece::simulator::SimulationTest)
#include "simulation_test.moc"
