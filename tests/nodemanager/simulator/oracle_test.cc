#include "nodemanager/simulator/oracle.h"

#include <QtTest>

#include "cluster/base/status.h"
#include "tests/nodemanager/simulator/profiles.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::simulator {
namespace {}  // namespace

class OracleTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // There is one device for each stage. Nothing can be chosen, and theorem 1 gives the bound.
  void WithoutChoice_ItIsTheRateOfTheSlowestStage() {
    const auto settings = Settings(600, 10, 2);
    const System system = *MakeDisaggregated(Chain({1, 3}, 10), settings);
    const auto oracle = *RunOracle(system, settings, *MakeWorkload("poisson", system, settings));
    QCOMPARE(oracle.done, 200.0);
    QCOMPARE(oracle.interval_s, 10.0);
  }

  // All jobs are there at the beginning, and take 1 + 1 seconds on 4 devices. Each stage gets half
  // of the device time, in any order: 3 + 1 devices first and 1 + 3 later end as many jobs as 2 + 2
  // devices always do.
  void ABatch_IsWorkedOffByAllDevices() {
    const auto settings = Settings(100, 1, 4);
    const System system = *MakeDisaggregated(Chain({1, 1}, 10), settings);
    const std::vector<Arrival> arrivals(1000, Arrival{});
    QCOMPARE(RunOracle(system, settings, arrivals)->done, 200.0);
  }

  // Jobs take 1 + 5 seconds on 3 devices. The placement 1 + 2 makes 0.4 jobs/s, and the first
  // device is idle most of the time. Nothing is better, because each stage keeps one device.
  void Minima_AreKept() {
    const auto settings = Settings(100, 1, 3);
    const System system = *MakeDisaggregated(Chain({1, 5}, 10), settings);
    const std::vector<Arrival> arrivals(1000, Arrival{});
    QCOMPARE(RunOracle(system, settings, arrivals)->done, 40.0);
  }

  void NoPolicy_IsBetter() {
    double best = 0;
    for (int seed = 1; seed <= 12; ++seed) {
      auto settings = Settings(600, 0.9, 4 + seed % 3);
      settings.set_seed(static_cast<std::uint64_t>(seed));
      settings.mutable_elasticity()->set_window_s(30);
      settings.set_admission(seed % 2 == 0);
      settings.set_burst_s(60);
      const System system = *MakeDisaggregated(Chain({1, 4}, 10), settings);
      const auto arrivals = *MakeWorkload(seed % 3 == 0 ? "bursty" : "poisson", system, settings);
      const auto oracle = RunOracle(system, settings, arrivals);
      QVERIFY2(oracle.ok(), base::Message(oracle.status()).c_str());
      for (const char* policy : {"static", "utilization"}) {
        // The policy begins with a bad placement, and with the best one.
        for (const auto& placement :
             {std::vector<int>{2, 1}, *BestPlacement(system, system.devices)}) {
          const auto result =
              *Simulate(system, settings, arrivals, {.policy = policy, .placement = placement});
          QVERIFY2(result.throughput <= oracle->throughput + 1e-9, policy);
          best = std::max(best, result.throughput / oracle->throughput);
        }
      }
    }
    // The bound is tight: a policy comes close to it.
    QVERIFY2(best > 0.9, qPrintable(QString::number(best)));
  }

  void WhatItCannotSolve_ItSays() {
    const auto settings = Settings(600, 1, 4);
    auto profile = Chain({1, 1}, 10);
    profile.mutable_apps(0)->mutable_stages(0)->set_variation(0.5);
    QCOMPARE(Reason(RunOracle(*MakeDisaggregated(profile, settings), settings, {}).status()),
             std::string("NOT_FOR_ORACLE"));
    const System system = *MakeDisaggregated(Chain({1, 1}, 0.01), settings);
    QCOMPARE(Reason(RunOracle(system, settings, {}).status()), std::string("NOT_FOR_ORACLE"));
    const System two = *MakeDisaggregated(Chain({1, 1}, 10), settings);
    QCOMPARE(Reason(RunOracle(two, settings, {{.units = 2}}).status()),
             std::string("NOT_FOR_ORACLE"));
  }
};

}  // namespace onepiece::simulator

ONEPIECE_TEST(onepiece::simulator::OracleTest)
#include "oracle_test.moc"
