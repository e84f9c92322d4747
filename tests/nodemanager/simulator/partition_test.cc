#include "nodemanager/simulator/partition.h"

#include <QtTest>
#include <cmath>

#include "cluster/base/status.h"
#include "tests/nodemanager/simulator/profiles.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::simulator {
namespace {

v1::SimulationConfig At(double rate, int devices, int degree) {
  auto settings = Settings(3600, rate, devices);
  settings.set_rate(rate);
  settings.set_degree(degree);
  return settings;
}

// Finds the same answer in another way: by recursion over the end of the first group.
int FewestDevices(const System& system, std::size_t first, double rate, int degree) {
  const auto& stages = system.apps[0].stages;
  if (first == stages.size()) return 0;
  int best = 1 << 30;
  for (std::size_t end = first + 1; end <= stages.size(); ++end) {
    bool parallel = false;
    for (std::size_t s = first; s < end; ++s) parallel = parallel || stages[s].parts[0].parallel;
    double seconds = 0;
    for (std::size_t s = first; s < end; ++s)
      seconds += stages[s].parts[0].seconds / (stages[s].parts[0].parallel ? degree : 1);
    const int instances =
        std::max(1, static_cast<int>(std::ceil(rate * seconds / kPartitionUtilization - 1e-9)));
    best = std::min(best,
                    instances * (parallel ? degree : 1) + FewestDevices(system, end, rate, degree));
  }
  return best;
}

}  // namespace

class PartitionTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Devices that wait while one of them encodes cost more than a separate encoder.
  void AParallelStage_IsSetApartAtHighRates() {
    v1::SimulationProfile profile = Chain({4, 80, 2});
    profile.mutable_apps(0)->mutable_stages(1)->set_parallel(true);
    const auto partition = *PartitionApp(profile, At(1, 512, 8), 0);
    const Cut& best = partition.cuts.front();
    QCOMPARE(CutText(best), std::string("s0 ×5 | s1 ×12 | s2 ×3"));
    QCOMPARE(best.devices, 5 + 12 * 8 + 3);
    QCOMPARE(partition.cuts.size(), std::size_t{4});
    QCOMPARE(best.groups[1].waste_s, 0.0);
    // In the single group seven of eight devices wait for 4 + 2 seconds a job.
    const Cut& worst = partition.cuts.back();
    QCOMPARE(worst.groups.size(), std::size_t{1});
    QCOMPARE(worst.groups[0].waste_s, 7.0 * 6);
    QCOMPARE(worst.devices, 8 * 19);
  }

  // A separate encoder would be idle almost always.
  void AtLowRates_FewerPoolsAreBetter() {
    v1::SimulationProfile profile = Chain({0.1, 8});
    profile.mutable_apps(0)->mutable_stages(1)->set_parallel(true);
    QCOMPARE(CutText(PartitionApp(profile, At(0.01, 64, 8), 0)->cuts.front()),
             std::string("s0+s1"));
  }

  void WithoutParallelStages_TheMostIsMadeOfTheDevices() {
    auto settings = At(0, 4, 1);
    settings.set_rate(0);
    const auto partition = *PartitionApp(Chain({1, 1, 2}), settings, 0);
    // Four instances that run all stages are as fast as a balanced cut, and have fewer pools.
    QCOMPARE(CutText(partition.cuts.front()), std::string("s0+s1+s2 ×4"));
    QCOMPARE(partition.cuts.front().rate, 1.0);
    QCOMPARE(partition.cuts.front().balance, 1.0);
    for (const Cut& cut : partition.cuts) QVERIFY(cut.rate <= 1.0 + 1e-12 && cut.devices <= 4);
  }

  void WeightsThatDontFit_AreKeptApart() {
    v1::SimulationProfile profile = Chain({1, 1, 1});
    for (auto& pool : *profile.mutable_pools()) pool.set_weights_bytes(40);
    auto settings = At(0.5, 64, 1);
    settings.set_device_bytes(80);
    const auto partition = *PartitionApp(profile, settings, 0);
    QCOMPARE(partition.too_large, 1);
    for (const Cut& cut : partition.cuts)
      for (const Group& group : cut.groups) QVERIFY(group.bytes <= 80);
    settings.set_device_bytes(30);
    QCOMPARE(Reason(PartitionApp(profile, settings, 0).status()), std::string("TOO_FEW_DEVICES"));
  }

  void ManyChains_AgreeWithARecursion() {
    const std::vector<std::vector<double>> chains = {
        {3.17, 207.7, 2.22}, {0.3, 25, 0.3, 4}, {1, 2, 3, 4, 5}, {9, 1, 1, 30, 2, 0.2}, {2}};
    for (const auto& seconds : chains) {
      for (std::size_t parallel = 0; parallel < seconds.size(); ++parallel) {
        for (const double rate : {0.003, 0.05, 0.21, 1.7}) {
          for (const int degree : {1, 4, 8}) {
            v1::SimulationProfile profile = Chain(seconds);
            profile.mutable_apps(0)->mutable_stages(static_cast<int>(parallel))->set_parallel(true);
            const auto settings = At(rate, 4096, degree);
            const auto partition = *PartitionApp(profile, settings, 0);
            QCOMPARE(partition.cuts.front().devices,
                     FewestDevices(*MakeDisaggregated(profile, settings), 0, rate, degree));
          }
        }
      }
    }
  }

  void WhatIsNoChain_IsRefused() {
    v1::SimulationProfile profile = Chain({1, 1, 1});
    profile.mutable_apps(0)->mutable_stages(2)->add_after("s0");
    QCOMPARE(Reason(PartitionApp(profile, At(1, 8, 1), 0).status()), std::string("NOT_A_CHAIN"));
    profile = Chain({1, 1});
    profile.mutable_apps(0)->mutable_stages(0)->set_parallel(true);
    auto settings = At(0, 4, 4);
    settings.set_rate(0);
    settings.set_degree(4);
    // Four devices for the parallel stage and one for the other do not fit. Four for both together
    // do.
    QCOMPARE(PartitionApp(profile, settings, 0)->cuts.size(), std::size_t{1});
  }
};

}  // namespace onepiece::simulator

ONEPIECE_TEST(onepiece::simulator::PartitionTest)
#include "partition_test.moc"
