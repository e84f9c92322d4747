// Tests what goes wrong in a simulated cluster, and that the cluster's own engine mends it.
#include <QtTest>

#include "tests/nodemanager/simulator/profiles.h"
#include "tests/test_main.h"

namespace onepiece::simulator {
namespace {

// Two stages of equal work, ten times as many devices as the load needs.
v1::SimulationConfig Roomy() {
  v1::SimulationConfig settings = Settings(20'000, 1, 12);
  settings.mutable_elasticity()->set_window_s(60);
  return settings;
}

}  // namespace

class TroublesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void TheDead_LoseNoJob() {
    auto settings = Roomy();
    settings.set_mtbf_s(5'000);
    settings.set_repair_s(30);
    const System system = *MakeDisaggregated(Chain({1, 2}), settings);
    const SimulationResult result = Run(system, settings, "poisson", {5, 7});
    // 12 devices, each up for 5,000 s and down for 30 s on average.
    QVERIFY2(result.deaths > 25 && result.deaths < 80, qPrintable(QString::number(result.deaths)));
    QVERIFY(result.given_again > 0);
    QCOMPARE(result.done, result.offered);
    for (const PoolResult& pool : result.pools) QVERIFY(pool.mean_instances < 7);
    settings.set_mtbf_s(0);
    const SimulationResult calm = Run(system, settings, "poisson", {5, 7});
    QCOMPARE(calm.deaths, std::uint64_t{0});
    QVERIFY(result.latency.max > calm.latency.max);
  }

  // What died comes back to its place by itself: its placement is in the state.
  void TheDead_ComeBackWhereTheyWere() {
    auto settings = Roomy();
    settings.set_mtbf_s(2'000);
    settings.set_repair_s(3);
    const System system = *MakeDisaggregated(Chain({1, 2}), settings);
    const SimulationResult result = Run(system, settings, "poisson", {5, 7});
    QVERIFY(result.deaths > 60);
    QVERIFY(result.pools[0].mean_instances > 4.9);
    QVERIFY(result.pools[1].mean_instances > 6.9);
  }

  void AnInstanceOfSeveralDevices_DiesAsAWhole() {
    v1::SimulationProfile profile = Chain({1, 16});
    profile.mutable_apps(0)->mutable_stages(1)->set_parallel(true);
    auto settings = Roomy();
    settings.set_rate(0.5);
    settings.set_degree(4);
    settings.set_mtbf_s(4'000);
    const System system = *MakeDisaggregated(profile, settings);
    const SimulationResult result = Run(system, settings, "poisson", {2, 2});
    QVERIFY(result.deaths > 0 && result.given_again > 0);
    QVERIFY(result.done > result.offered * 9 / 10);
  }

  // The engine takes back the moves whose model does not load, and the pool is given up after two.
  void LoadsThatFail_AreReverted() {
    auto settings = Roomy();
    settings.set_duration_s(4'000);
    settings.set_load_failures(1);
    const System system = *MakeDisaggregated(Chain({1, 2}), settings);
    // The second pool is far too small.
    const SimulationResult result = Run(system, settings, "poisson", {2, 1}, "utilization");
    QVERIFY(result.failed_loads > 0);
    QVERIFY(result.reverts > 0);
    QCOMPARE(result.reverts, result.moves);
    // Two in four windows at most, although the policy looks every six seconds.
    QVERIFY2(result.moves <= 2 * (4'000 / 240 + 1), qPrintable(QString::number(result.moves)));
    QVERIFY(result.pools[1].mean_instances < 3);
  }

  // The demand swings between two applications, so instances go to and fro between their pools.
  void ParkedWeights_SaveLoads() {
    v1::SimulationProfile profile = Chain({1}, 20);
    *profile.add_apps() = profile.apps(0);
    profile.mutable_apps(1)->set_app_id("other");
    profile.mutable_apps(1)->mutable_stages(0)->set_pool("other");
    profile.mutable_pools(0)->set_weights_bytes(10);
    profile.add_pools()->set_pool("other");
    profile.mutable_pools(1)->set_load_s(20);
    profile.mutable_pools(1)->set_weights_bytes(10);
    v1::SimulationConfig settings = Settings(30'000, 1, 6);
    settings.mutable_elasticity()->set_window_s(100);
    const System system = *MakeDisaggregated(profile, settings);
    std::vector<Arrival> arrivals;
    for (int i = 0; i < 90'000; ++i) {
      const double at_s = i / 3.0;
      const bool first = static_cast<int>(at_s / 3'000) % 2 == 0;
      arrivals.push_back({.time_s = at_s, .app = i % 12 == 0 ? 0 : first ? 0 : 1});
    }
    const SimulationOptions options{.policy = "utilization", .placement = {3, 3}};
    const SimulationResult without = *Simulate(system, settings, arrivals, options);
    settings.set_parked_bytes(20);
    const SimulationResult with = *Simulate(system, settings, arrivals, options);
    QCOMPARE(without.parked_loads, std::uint64_t{0});
    QVERIFY2(without.moves > 5, qPrintable(QString::number(without.moves)));
    QVERIFY2(with.parked_loads > 0, qPrintable(QString::number(with.moves)));
    QVERIFY(with.resident_bytes_peak > without.resident_bytes_peak);
  }

  // Theorem 1 holds however many proxies share the pools: together they admit what one would.
  void SeveralProxies_ShareTheCapacity_data() {
    QTest::addColumn<int>("proxies");
    QTest::newRow("one") << 1;
    QTest::newRow("four") << 4;
  }
  void SeveralProxies_ShareTheCapacity() {
    QFETCH(int, proxies);
    auto settings = Roomy();
    settings.set_admission(true);
    settings.set_proxies(proxies);
    settings.set_rate(4);  // Twice what three instances of 1.5 s take.
    settings.mutable_elasticity()->set_window_s(15);
    const System system = *MakeDisaggregated(Chain({1.5}), settings);
    const SimulationResult result = Run(system, settings, "poisson", {3});
    QVERIFY2(result.throughput > 0.9 * 2 && result.throughput <= 2.001,
             qPrintable(QString::number(result.throughput)));
    QVERIFY(result.rejected > 0);
    QVERIFY2(result.queued.p95 < 12, qPrintable(QString::number(result.queued.p95)));
  }

  void SeveralSets_AreServedApart() {
    auto settings = Roomy();
    settings.set_workflow_sets(2);
    settings.set_admission(true);
    settings.set_rate(2);
    const System system = *MakeDisaggregated(Chain({1, 2}), settings);
    const SimulationResult result = Run(system, settings, "poisson", {4, 8}, "utilization");
    QCOMPARE(result.offered, result.accepted + result.rejected);
    QVERIFY(result.done > result.offered * 99 / 100);
    const auto refused = Simulate(system, settings, {{.time_s = 1}}, {.placement = {1, 2}});
    QCOMPARE(refused.status().code(), absl::StatusCode::kInvalidArgument);
  }

  void OneSeed_OneHistory() {
    auto settings = Roomy();
    settings.set_duration_s(5'000);
    settings.set_mtbf_s(3'000);
    settings.set_load_failures(0.1);
    settings.set_proxies(2);
    settings.set_admission(true);
    settings.set_rate(3);
    const System system = *MakeDisaggregated(Chain({1, 2}), settings);
    const SimulationResult a = Run(system, settings, "bursty", {3, 5}, "utilization");
    const SimulationResult b = Run(system, settings, "bursty", {3, 5}, "utilization");
    QCOMPARE(a.events, b.events);
    QCOMPARE(a.latency.mean, b.latency.mean);
    QCOMPARE(a.deaths, b.deaths);
    QCOMPARE(a.reverts, b.reverts);
  }
};

}  // namespace onepiece::simulator

ONEPIECE_TEST(onepiece::simulator::TroublesTest)
#include "troubles_test.moc"
