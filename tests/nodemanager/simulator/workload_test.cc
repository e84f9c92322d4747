#include "nodemanager/simulator/workload.h"

#include <QtTest>
#include <algorithm>
#include <cmath>

#include "cluster/base/status.h"
#include "cluster/config/yaml.h"
#include "tests/nodemanager/simulator/profiles.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::simulator {
namespace {

System TwoApps() {
  v1::SimulationProfile profile = Chain({1});
  *profile.add_apps() = profile.apps(0);
  profile.mutable_apps(0)->set_share(3);
  profile.mutable_apps(1)->set_app_id("other");
  return *MakeDisaggregated(profile, Settings(100, 1, 4));
}

double PerSecond(const std::vector<Arrival>& arrivals, double from, double to) {
  return static_cast<double>(std::ranges::count_if(
             arrivals, [&](const Arrival& one) { return one.time_s >= from && one.time_s < to; })) /
         (to - from);
}

// The variance of the counts in steps of 10 s over their mean. It is 1 for a Poisson process.
double Dispersion(const std::vector<Arrival>& arrivals, double duration_s) {
  std::vector<double> counts(static_cast<std::size_t>(duration_s / 10));
  for (const Arrival& one : arrivals)
    ++counts[std::min(counts.size() - 1, static_cast<std::size_t>(one.time_s / 10))];
  double mean = 0, squares = 0;
  for (const double count : counts) {
    mean += count;
    squares += count * count;
  }
  mean /= static_cast<double>(counts.size());
  return (squares / static_cast<double>(counts.size()) - mean * mean) / mean;
}

bool Near(double value, double expected, double share) {
  return std::abs(value - expected) <= share * expected;
}

}  // namespace

class WorkloadTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void EveryKind_OffersTheMeanRate() {
    const System system = TwoApps();
    const auto settings = Settings(864'000, 0.5, 4);
    for (const char* kind : {"poisson", "bursty", "diurnal"}) {
      const auto arrivals = *MakeWorkload(kind, system, settings);
      QVERIFY2(Near(PerSecond(arrivals, 0, 864'000), 0.5, 0.05), kind);
      QVERIFY(std::ranges::is_sorted(arrivals, {}, &Arrival::time_s));
      const auto other = std::ranges::count(arrivals, 1, &Arrival::app);
      QVERIFY2(Near(static_cast<double>(other), static_cast<double>(arrivals.size()) / 4, 0.05),
               kind);
      QCOMPARE(*MakeWorkload(kind, system, settings), arrivals);
    }
    QVERIFY(Near(Dispersion(*MakeWorkload("poisson", system, settings), 864'000), 1, 0.05));
    QVERIFY(Dispersion(*MakeWorkload("bursty", system, settings), 864'000) > 2);
  }

  void Diurnal_IsLowAtMidnightAndHighAtNoon() {
    const System system = TwoApps();
    const auto arrivals = *MakeWorkload("diurnal", system, Settings(86'400, 2, 4));
    QVERIFY(Near(PerSecond(arrivals, 0, 3600), 2 * 0.2, 0.15));
    QVERIFY(Near(PerSecond(arrivals, 41'400, 45'000), 2 * 1.8, 0.15));
  }

  void ATrace_ComesBackAsItWas() {
    const System system = TwoApps();
    auto arrivals = *MakeWorkload("bursty", system, Settings(1000, 1, 4));
    arrivals[3].units = 0.1;
    QCOMPARE(*ParseTrace(TraceText(system, arrivals), "t.csv", system), arrivals);
  }

  void ATrace_MayLeaveOutUnitsAndEndLinesInAnyWay() {
    const auto arrivals = *ParseTrace("time_s,app\r\n1,app\r\n\r\n1.5,other\r\n", "t", TwoApps());
    QCOMPARE(arrivals, (std::vector<Arrival>{{1, 0, 1}, {1.5, 1, 1}}));
  }

  void BadTraces_AreNamedWithTheirLine_data() {
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("says");
    QTest::newRow("empty") << ""
                           << "t.csv:1: no job";
    QTest::newRow("header only") << "time_s,app,units\n"
                                 << "t.csv:1: no job";
    QTest::newRow("no header") << "1,app,1\n"
                               << "t.csv:1: the first line must be";
    QTest::newRow("word") << "time_s,app\nsoon,app\n"
                          << "t.csv:2: time_s 'soon'";
    QTest::newRow("NaN") << "time_s,app\nnan,app\n"
                         << "t.csv:2: time_s";
    QTest::newRow("negative") << "time_s,app\n-1,app\n"
                              << "t.csv:2: time_s";
    QTest::newRow("app") << "time_s,app\n1,nobody\n"
                         << "t.csv:2: application 'nobody'";
    QTest::newRow("order") << "time_s,app\n2,app\n1,app\n"
                           << "t.csv:3: is earlier";
    QTest::newRow("cells") << "time_s,app\n1,app,1\n"
                           << "t.csv:2: has 3 cells";
    QTest::newRow("no units") << "time_s,app,units\n1,app,0\n"
                              << "t.csv:2: units '0'";
    QTest::newRow("infinite") << "time_s,app,units\n1,app,inf\n"
                              << "t.csv:2: units";
    QTest::newRow("bytes") << "\x80\xff"
                           << "t.csv:1: the first line must be";
  }
  void BadTraces_AreNamedWithTheirLine() {
    QFETCH(QString, text);
    QFETCH(QString, says);
    const auto trace = ParseTrace(text.toStdString(), "t.csv", TwoApps());
    QCOMPARE(Reason(trace.status()), std::string("BAD_TRACE"));
    QVERIFY2(QString::fromStdString(base::Message(trace.status())).contains(says),
             base::Message(trace.status()).c_str());
  }

  void UnknownAndEndlessWorkloads_AreRefused() {
    const System system = TwoApps();
    QCOMPARE(Reason(MakeWorkload("lunar", system, Settings(10, 1, 1)).status()),
             std::string("WORKLOAD_UNKNOWN"));
    QCOMPARE(Reason(MakeWorkload("poisson", system, Settings(1e7, 1e5, 1)).status()),
             std::string("TOO_MANY_JOBS"));
  }

  void BadProfiles_NameTheField_data() {
    QTest::addColumn<QString>("yaml");
    QTest::addColumn<QString>("says");
    const QString app = "apps: [{app_id: a, stages: [{stage: x, seconds_per_unit: 1";
    QTest::newRow("empty") << "{}"
                           << "apps: none";
    QTest::newRow("no stages") << "apps: [{app_id: a}]"
                               << "apps[0].stages";
    QTest::newRow("no id") << "apps: [{stages: [{stage: x}]}]"
                           << "apps[0].app_id";
    QTest::newRow("free") << "apps: [{app_id: a, stages: [{stage: x}]}]"
                          << "apps[0].stages[0].seconds_per_unit: is 0";
    QTest::newRow("negative") << "apps: [{app_id: a, stages: [{stage: x, seconds_per_unit: -1}]}]"
                              << "seconds_per_unit: is -1";
    QTest::newRow("after") << app + ", after: [y]}]}]"
                           << "'y' is no earlier stage";
    QTest::newRow("self") << app + ", after: [x]}]}]"
                          << "'x' is no earlier stage";
    QTest::newRow("variation") << app + ", variation: 99}]}]"
                               << "variation: is 99";
    QTest::newRow("load") << app + "}]}]\npools: [{pool: x, load_s: -2}]"
                          << "pools[0].load_s";
    QTest::newRow("limits") << app + "}]}]\npools: [{pool: x, min_instances: 3, max_instances: 2}]"
                            << "max_instances: is below";
    QTest::newRow("twice") << "apps: [{app_id: a, stages: [{stage: x, seconds_per_unit: 1}]}, "
                              "{app_id: a, stages: [{stage: x, seconds_per_unit: 1}]}]"
                           << "a is there twice";
  }
  void BadProfiles_NameTheField() {
    QFETCH(QString, yaml);
    QFETCH(QString, says);
    v1::SimulationProfile profile;
    QVERIFY(config::ParseYaml(yaml.toStdString(), "p.yaml", &profile).ok());
    const auto system = MakeDisaggregated(profile, Settings(10, 1, 4));
    QCOMPARE(Reason(system.status()), std::string("BAD_PROFILE"));
    QVERIFY2(QString::fromStdString(base::Message(system.status())).contains(says),
             base::Message(system.status()).c_str());
    QCOMPARE(Reason(MakeMonolithic(profile, Settings(10, 1, 4)).status()),
             std::string("BAD_PROFILE"));
  }

  void BadSettings_AreNamed() {
    v1::SimulationConfig settings;
    settings.set_degree(65);
    QVERIFY(base::Message(CompleteSettings(settings).status()).find("degree is 65") !=
            std::string::npos);
    settings.set_degree(8);
    settings.set_amplitude(1.5);
    QCOMPARE(Reason(CompleteSettings(settings).status()), std::string("BAD_SETTING"));
  }

  void Placements_AreCheckedAndFound() {
    v1::SimulationProfile profile = Chain({1, 3});
    const System system = *MakeDisaggregated(profile, Settings(10, 1, 8));
    QCOMPARE(*BestPlacement(system, 8), (std::vector<int>{2, 6}));
    // A device that does not widen the narrowest pool stays idle.
    QCOMPARE(*BestPlacement(system, 5), (std::vector<int>{1, 3}));
    QCOMPARE(Reason(BestPlacement(system, 1).status()), std::string("TOO_FEW_DEVICES"));
    QCOMPARE(*StartPlacement(system, "s1=2,s0=5"), (std::vector<int>{5, 2}));
    for (const char* bad : {"s0=1", "s0=1,s1", "s0=1,s1=x", "s0=1,s1=-1", "s0=4,s1=5", "x=1"})
      QCOMPARE(Reason(StartPlacement(system, bad).status()), std::string("BAD_SETTING"));
  }
};

}  // namespace onepiece::simulator

ONEPIECE_TEST(onepiece::simulator::WorkloadTest)
#include "workload_test.moc"
