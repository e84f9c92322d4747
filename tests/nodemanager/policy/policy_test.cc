// Tests the rules of the policies one by one.
#include "nodemanager/policy/policy.h"

#include <QtTest>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <map>

#include "cluster/base/status.h"
#include "tests/nodemanager/policy/policy_cluster.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::seconds;

// x has one instance, which is above the threshold. y has three that do little but are not nearly
// idle.
Cluster BusyAndSpare() {
  Cluster cluster;
  cluster.Instances("x", 1, 0.95).Instances("y", 3, 0.31).App("a", {{"x", 0.95}, {"y", 0.93}});
  cluster.Pool("y").min_instances = 1;
  return cluster;
}

bool Says(const PolicyDecision& decision, const char* words) {
  const bool says = QString::fromStdString(decision.detail).contains(words);
  if (!says) qWarning("detail: %s", decision.detail.c_str());
  return says;
}

}  // namespace

class PolicyTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void defaultsAreTheDocumentedOnes() {
    const v1::ElasticityConfig config = *CompleteElasticity({});
    QCOMPARE(config.policy(), std::string("utilization"));
    QCOMPARE(config.window_s(), 300.0);
    QCOMPARE(config.threshold(), 0.85);
    QCOMPARE(config.low_threshold(), 0.3);
    QCOMPARE(config.cooldown_s(), 300.0);
    QCOMPARE(config.max_moves(), 0);
    QCOMPARE(config.max_move_share(), 0.1);
    QCOMPARE(config.interval_s(), 10.0);
    QCOMPARE(config.move_timeout_s(), 300.0);
    v1::ElasticityConfig small;
    small.set_window_s(5);
    QCOMPARE(CompleteElasticity(small)->cooldown_s(), 5.0);
    QCOMPARE(CompleteElasticity(small)->interval_s(), 0.5);
  }

  void theThresholdAloneIsEnough_data() {
    QTest::addColumn<double>("threshold");
    QTest::addColumn<double>("low");
    QTest::newRow("high") << 0.9 << 0.3;
    QTest::newRow("twice the usual lower one") << 0.6 << 0.3;
    QTest::newRow("below the usual lower one") << 0.25 << 0.125;
    QTest::newRow("the least") << 0.05 << 0.025;
  }
  void theThresholdAloneIsEnough() {
    QFETCH(double, threshold);
    QFETCH(double, low);
    v1::ElasticityConfig config;
    config.set_threshold(threshold);
    const auto completed = CompleteElasticity(config);
    QVERIFY2(completed.ok(), qPrintable(QString::fromStdString(completed.status().ToString())));
    QCOMPARE(completed->threshold(), threshold);
    QCOMPARE(completed->low_threshold(), low);
  }

  void badConfigurationIsNamed_data() {
    QTest::addColumn<QString>("field");
    QTest::addColumn<std::function<void(v1::ElasticityConfig&)>>("spoil");
    using Config = v1::ElasticityConfig;
    const std::vector<std::pair<QString, void (Config::*)(double)>> fields = {
        {"window_s", &Config::set_window_s},
        {"threshold", &Config::set_threshold},
        {"low_threshold", &Config::set_low_threshold},
        {"cooldown_s", &Config::set_cooldown_s},
        {"interval_s", &Config::set_interval_s},
        {"move_timeout_s", &Config::set_move_timeout_s},
        {"max_move_share", &Config::set_max_move_share}};
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const auto& [field, set] : fields) {
      for (const double bad : {-1.0, nan, 1e300}) {
        QTest::newRow(qPrintable(QString("%1 %2").arg(field).arg(bad)))
            << field
            << std::function<void(Config&)>([set = set, bad](Config& c) { (c.*set)(bad); });
      }
    }
    QTest::newRow("max_moves -1") << QString("max_moves")
                                  << std::function<void(Config&)>(
                                         [](Config& c) { c.set_max_moves(-1); });
    QTest::newRow("low above high")
        << QString("low_threshold")
        << std::function<void(Config&)>([](Config& c) { c.set_low_threshold(0.9); });
  }
  void badConfigurationIsNamed() {
    QFETCH(QString, field);
    QFETCH(std::function<void(v1::ElasticityConfig&)>, spoil);
    v1::ElasticityConfig config;
    spoil(config);
    const auto completed = CompleteElasticity(config);
    QVERIFY(!completed.ok());
    QCOMPARE(base::GetReason(completed.status()).reason, std::string("BAD_ELASTICITY"));
    QCOMPARE(base::GetReason(completed.status()).metadata["field"], field.toStdString());
  }

  void policiesHaveNames() {
    v1::ElasticityConfig config = Config();
    QCOMPARE((*MakePolicy(config))->name(), std::string_view("utilization"));
    config.set_policy("static");
    QCOMPARE((*MakePolicy(config))->name(), std::string_view("static"));
    QCOMPARE(BusyAndSpare().Moves(config), QString());
    config.set_policy("magic");
    QCOMPARE(base::GetReason(MakePolicy(config).status()).reason, std::string("POLICY_UNKNOWN"));
  }

  void nothingHappensBelowTheThreshold() {
    Cluster cluster;
    cluster.Instances("x", 1, 0.8).Instances("y", 3, 0.5).App("a", {{"x", 0.8}, {"y", 1.5}});
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "no pool is above 85 %"));
    QCOMPARE(Cluster().Moves(), QString());
  }

  void idleOnesOfTheSetGoFirst() {
    Cluster cluster = BusyAndSpare();
    cluster.Instances("", 1, 0, "other").Instances("", 1, 0);
    QCOMPARE(cluster.Moves(), QString(">x"));
    QCOMPARE(cluster.Decide().moves[0].node_id, std::string("i006"));
    cluster.view.instances.back().movable = false;
    QCOMPARE(cluster.Decide().moves[0].node_id, std::string("i005"));  // It is in the other set.
    cluster.view.instances[4].movable = false;
    QCOMPARE(cluster.Moves(), QString("y>x"));
  }

  void donorsOfTheSetGoFirst() {
    Cluster cluster = BusyAndSpare();
    cluster.Instances("z", 9, 0.31, "other").App("b", {{"z", 2.8}}, "other");
    QCOMPARE(cluster.Moves(), QString("y>x"));
    cluster.Pool("y").min_instances = 3;
    QCOMPARE(cluster.Moves(), QString("z>x"));
    QCOMPARE(cluster.Decide().moves[0].to_set, std::string("s"));
    QVERIFY(!cluster.Decide().moves[0].reason.empty());
  }

  void theBestDonorGives() {
    Cluster cluster = BusyAndSpare();
    cluster.Instances("z", 6, 0.4).App("b", {{"z", 2.4}});
    QCOMPARE(cluster.Moves(), QString("y>x"));  // y is then at 47 %; z would be at 48 %.
    cluster.Instances("z", 1, 0.0);
    QCOMPARE(cluster.Moves(), QString("z>x"));
  }

  void aDonorStaysBelowTheThreshold() {
    Cluster cluster;
    cluster.Instances("x", 1, 0.95).Instances("y", 2, 0.45).App("a", {{"x", 0.95}, {"y", 0.9}});
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "no pool can spare one"));
    Cluster spare;
    spare.Instances("x", 1, 0.95).Instances("y", 2, 0.35).App("a", {{"x", 0.95}, {"y", 0.7}});
    QCOMPARE(spare.Moves(), QString("y>x"));
    // The measured utilisation counts when it is higher than what is offered.
    for (InstanceView& instance : spare.view.instances) {
      if (instance.pool == "y") instance.utilization = 0.6;
    }
    QCOMPARE(spare.Moves(), QString());
  }

  void minimumMaximumAndPins() {
    Cluster cluster = BusyAndSpare();
    cluster.Pool("y").min_instances = 3;
    QCOMPARE(cluster.Moves(), QString());
    cluster = BusyAndSpare();
    cluster.Pool("x").max_instances = 1;
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "maximum of 1"));
    cluster = BusyAndSpare();
    for (InstanceView& instance : cluster.view.instances) instance.pinned_stage = instance.pool;
    QCOMPARE(cluster.Moves(), QString());
    for (InstanceView& instance : cluster.view.instances) instance.pinned_stage = "x";
    QCOMPARE(cluster.Moves(), QString("y>x"));
    for (InstanceView& instance : cluster.view.instances) instance.movable = false;
    QCOMPARE(cluster.Moves(), QString());
  }

  void whoServesNobodyStillFillsTheMaximum() {
    Cluster cluster = BusyAndSpare();
    cluster.Pool("x").max_instances = 2;
    cluster.Instances("x", 1, 0);
    cluster.view.instances.back().workers = 0;
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "maximum of 2"));
    cluster.Pool("x").max_instances = 3;
    cluster.Pool("x").min_instances = 2;  // The useless instance does not fill the minimum.
    QVERIFY(cluster.Decide().moves.at(0).reason.starts_with("x at"));
    QCOMPARE(cluster.Moves(), QString("y>x"));
  }

  void aPoolBelowItsMinimumComesFirst() {
    Cluster cluster = BusyAndSpare();
    cluster.Pool("w").min_instances = 1;
    cluster.Instances("", 1, 0);
    QCOMPARE(cluster.Moves(), QString(">w"));
    cluster.view.instances.pop_back();
    QCOMPARE(cluster.Moves(), QString("y>w"));
  }

  // Nobody has measured what a load costs, and y's instances have nothing to finish. The move still
  // gains nothing for a set that is asked for nothing.
  void aMinimumOfAnotherSetTakesNoInstanceForNothing() {
    Cluster cluster;
    cluster.Instances("y", 3, 0.0);
    cluster.Pool("x", "t").min_instances = 1;
    QCOMPARE(cluster.Moves(), QString());
    cluster.App("a", {{"x", 0.5}}, "t");
    QCOMPARE(cluster.Moves(), QString("y>x@t"));
  }

  void contradictoryLimitsEnd() {
    Cluster cluster = BusyAndSpare();
    cluster.Pool("x").min_instances = 1000;  // There are not so many instances.
    cluster.Pool("y").min_instances = 1000;
    QCOMPARE(cluster.Moves(Config(100)), QString());
    QVERIFY(Says(cluster.Decide(), "1 of at least 1000 instances"));
    cluster.Pool("x").max_instances = 1;  // It is below the minimum, and counts.
    cluster.Pool("y").max_instances = 2;
    cluster.Instances("", 2, 0);
    QCOMPARE(cluster.Moves(Config(100)), QString());
    QVERIFY(Says(cluster.Decide(), "is above its maximum"));
    cluster.Pool("x").max_instances = -5;
    cluster.Pool("y").min_instances = -5;
    (void)cluster.Moves(Config(100));
  }

  void offeredWorkRanksSaturatedPools() {
    // Both are at 100 %, but y is asked for three times as much.
    Cluster cluster;
    cluster.Instances("x", 1, 1.0).Instances("y", 1, 1.0).Instances("", 1, 0);
    cluster.App("a", {{"x", 1.3}}).App("b", {{"y", 3.9}});
    QCOMPARE(cluster.Moves(), QString(">y"));
    // Each gets as many instances as the offered work needs, and no more.
    cluster.Instances("", 9, 0);
    QCOMPARE(cluster.Moves(Config(100)), QString(">y >y >x >y >y"));
  }

  void measuredWorkCountsWithoutDemand() {
    Cluster cluster;
    cluster.Instances("x", 2, 0.97).Instances("", 1, 0);
    QCOMPARE(cluster.Moves(), QString(">x"));
  }

  void inOverloadTheNarrowestIsWidened() {
    // By what is offered both are above the threshold, but y lets twice as much through as x.
    Cluster cluster;
    cluster.Instances("x", 2, 1).Instances("y", 6, 0.5).App("a", {{"x", 8}, {"y", 12}});
    QCOMPARE(cluster.Moves(), QString("y>x"));
    // A pool whose application gets all that it asks for does not give to another.
    Cluster served;
    served.Instances("x", 2, 1).Instances("y", 2, 0.6).App("a", {{"x", 8}}).App("b", {{"y", 1.2}});
    QCOMPARE(served.Moves(), QString());
  }

  void whatAPoolAtItsMaximumStopsReachesNobody() {
    // x must not grow and lets a quarter through. y has enough instances for that.
    Cluster cluster;
    cluster.Instances("x", 1, 1).Instances("y", 1, 0.3).Instances("", 3, 0);
    cluster.App("a", {{"x", 4}, {"y", 1.2}});
    cluster.Pool("x").max_instances = 1;
    QCOMPARE(cluster.Moves(), QString());
    cluster.Pool("x").max_instances = 0;
    QCOMPARE(cluster.Moves(Config(4)), QString(">x >x >x"));
  }

  void aMoveMustPay() {
    Cluster cluster = BusyAndSpare();
    cluster.Pool("x").load_s = 30;  // The move gains 0.12 workers, which are 35 s in a window.
    QCOMPARE(cluster.Moves(), QString("y>x"));
    cluster.Pool("x").load_s = 60;
    QCOMPARE(cluster.Moves(), QString());
    cluster.Instances("", 1, 0);  // An idle instance loses nothing.
    QCOMPARE(cluster.Moves(), QString(">x"));
    cluster.view.instances.pop_back();
    cluster.Pool("x").load_s = std::numeric_limits<double>::quiet_NaN();
    QCOMPARE(cluster.Moves(), QString("y>x"));
    // The donor has to finish long jobs first.
    Cluster slow = BusyAndSpare();
    slow.Set("s").model.apps[0].arrivals_per_s = 0.01;
    for (capacity::StageDemand& demand : slow.Set("s").model.apps[0].stages)
      demand.seconds_per_job *= 100;
    QCOMPARE(slow.Moves(), QString());
  }

  void cooldownHoldsPoolsAndInstances() {
    Cluster cluster = BusyAndSpare();
    cluster.Pool("x").changes = {cluster.view.now - seconds(299)};
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "less than a cooldown ago"));
    cluster.Pool("y").changes = {cluster.view.now - seconds(299)};
    QCOMPARE(cluster.Moves(), QString());
    cluster.Pool("x").changes = cluster.Pool("y").changes = {cluster.view.now - seconds(300)};
    QCOMPARE(cluster.Moves(), QString("y>x"));
    for (InstanceView& instance : cluster.view.instances)
      instance.since = cluster.view.now - seconds(599);
    QCOMPARE(cluster.Moves(), QString());
    cluster.view.instances.back().since = cluster.view.now - seconds(600);
    QCOMPARE(cluster.Decide().moves[0].node_id, std::string("i004"));
  }

  // No pool loses an idle instance, so a busy pool need not wait for its cooldown.
  void idleOnesComeSoonerThanDonors() {
    Cluster cluster = BusyAndSpare();
    cluster.Instances("", 1, 0);
    cluster.Pool("x").changes = {cluster.view.now - seconds(29)};
    QCOMPARE(cluster.Moves(), QString());
    cluster.Pool("x").changes = {cluster.view.now - seconds(30)};
    QCOMPARE(cluster.Moves(), QString(">x"));
    cluster.view.instances.pop_back();
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "less than a cooldown ago"));
    // A pool gives instances to the idle ones only after a whole cooldown.
    Cluster nearly_idle;
    nearly_idle.Instances("x", 3, 0.1).App("a", {{"x", 0.3}});
    nearly_idle.Pool("x").changes = {nearly_idle.view.now - seconds(299)};
    QCOMPARE(nearly_idle.Moves(), QString());
  }

  void atMostSoManyMoves() {
    Cluster cluster = BusyAndSpare();
    cluster.Instances("z", 1, 1).App("b", {{"z", 3}}).Instances("", 5, 0);
    QCOMPARE(cluster.Decide(Config(1)).moves.size(), 1u);
    QCOMPARE(cluster.Decide(Config(2)).moves.size(), 2u);
    cluster.view.moves_under_way = 2;
    QCOMPARE(cluster.Moves(Config(2)), QString());
    QVERIFY(Says(cluster.Decide(Config(2)), "under way"));
  }

  // x wants 30 instances more, and y can spare them.
  static Cluster LargeBusyAndSpare() {
    Cluster cluster;
    cluster.Instances("x", 40, 1)
        .Instances("y", 100, 0.2)
        .App("a", {{"x", 60}})
        .App("b", {{"y", 20}});
    return cluster;
  }
  static int CountOf(const Cluster& cluster) {
    return static_cast<int>(cluster.Decide(Config(0)).moves.size());
  }

  // A tenth of a pool may change in a cooldown, and a tenth may be on its way.
  void largePoolsChangeByAShareOfTheirSize() {
    Cluster cluster = LargeBusyAndSpare();
    QCOMPARE(CountOf(cluster), 4);  // A tenth of x, which is smaller.
    QCOMPARE(cluster.Decide(Config(1)).moves.size(), std::size_t{1});
    cluster.Pool("x").changes.assign(3, cluster.view.now - seconds(299));
    QCOMPARE(CountOf(cluster), 1);
    cluster.Pool("x").changes.assign(4, cluster.view.now - seconds(299));
    QCOMPARE(CountOf(cluster), 0);
    QVERIFY(Says(cluster.Decide(Config(0)), "less than a cooldown ago"));
    cluster.Pool("x").changes.assign(40, cluster.view.now - seconds(300));
    QCOMPARE(CountOf(cluster), 4);
    cluster.Pool("y").leaving = 9;
    QCOMPARE(CountOf(cluster), 1);
    cluster.Pool("y").leaving = 20;  // Of 120, so more than its share is on its way.
    QCOMPARE(CountOf(cluster), 0);
    cluster.Instances("", 9, 0);
    QCOMPARE(CountOf(cluster), 4);  // They take nothing from y.
    cluster.Pool("x").arriving = 4;
    QCOMPARE(CountOf(cluster), 0);
    QVERIFY(Says(cluster.Decide(Config(0)), "4 of its instances are on their way"));
  }

  void largePoolsDoNotWaitForEachOther() {
    Cluster cluster = LargeBusyAndSpare();
    cluster.Instances("z", 20, 1)
        .App("c", {{"z", 30}})
        .Instances("v", 30, 0.1)
        .App("d", {{"v", 3}});
    std::map<std::string, int> to;
    for (const WantedMove& move : cluster.Decide(Config(0)).moves) ++to[move.to_pool];
    QCOMPARE(to["x"], 4);
    QCOMPARE(to["z"], 2);
  }

  void aFewReturnsOfALargePoolAreNoFlapping() {
    Cluster cluster = LargeBusyAndSpare();
    for (int i = 0; i < 3; ++i) cluster.Past(700 - i, "x", "y");
    for (int i = 0; i < 3; ++i) cluster.Past(350 - i, "y", "x");
    QCOMPARE(CountOf(cluster), 4);
    cluster.view.past.clear();
    for (int i = 0; i < 4; ++i) cluster.Past(700 - i, "x", "y");
    for (int i = 0; i < 4; ++i) cluster.Past(350 - i, "y", "x");
    QCOMPARE(CountOf(cluster), 0);
    QVERIFY(Says(cluster.Decide(Config(0)), "flapping: x gave and took 4 instances"));
  }

  // Somebody is always new in a large pool. It counts as busy.
  void aLargePoolGivesThoughAFewAreNotMeasured() {
    Cluster cluster = LargeBusyAndSpare();
    const auto forget = [&](int count) {
      for (InstanceView& instance : cluster.view.instances) {
        if (instance.pool != "y") continue;
        instance.utilization = count-- > 0 ? std::nullopt : std::optional(0.2);
      }
    };
    forget(9);
    QCOMPARE(CountOf(cluster), 4);
    forget(10);
    QCOMPARE(CountOf(cluster), 0);
    // y is at 78 % with what is measured, so the nine might be too much for it.
    cluster.Set("s").model.apps[1].stages[0].seconds_per_job = 73;
    for (InstanceView& instance : cluster.view.instances)
      if (instance.pool == "y") instance.utilization = 0.78;
    QCOMPARE(CountOf(cluster), 2);
    forget(9);
    for (InstanceView& instance : cluster.view.instances)
      if (instance.pool == "y" && instance.utilization.has_value()) instance.utilization = 0.78;
    QCOMPARE(CountOf(cluster), 0);
  }

  void whoLacksTheDeviceDoesNotGo() {
    Cluster cluster = BusyAndSpare();
    cluster.Instances("", 1, 0);
    cluster.view.instances.back().unfit_pools = {"x"};
    QCOMPARE(cluster.Moves(), QString("y>x"));
    for (InstanceView& instance : cluster.view.instances) instance.unfit_pools = {"x"};
    QCOMPARE(cluster.Moves(), QString());
    for (InstanceView& instance : cluster.view.instances) instance.unfit_pools = {"z"};
    QCOMPARE(cluster.Moves(), QString(">x"));
  }

  // x has an instance on host h0. y gives one of another host, and of its most crowded one.
  void movesSpreadPoolsOverHostsAndZones() {
    Cluster cluster = BusyAndSpare();
    const auto put = [&](const std::vector<std::pair<std::string, std::string>>& places) {
      for (std::size_t i = 0; i < places.size(); ++i) {
        cluster.view.instances[i].host = places[i].first;
        cluster.view.instances[i].zone = places[i].second;
      }
      return cluster.Decide().moves.at(0).node_id;
    };
    QCOMPARE(put({{"", ""}, {"", ""}, {"", ""}, {"", ""}}), std::string("i002"));
    QCOMPARE(put({{"h0", ""}, {"h0", ""}, {"h1", ""}, {"h2", ""}}), std::string("i003"));
    QCOMPARE(put({{"h0", ""}, {"h1", ""}, {"h2", ""}, {"h2", ""}}), std::string("i003"));
    QCOMPARE(put({{"h0", "z0"}, {"h1", "z0"}, {"h2", "z1"}, {"h3", "z1"}}), std::string("i003"));
    // Idle ones too, and each of them sees where the last one went.
    cluster.Instances("", 3, 0);
    cluster.App("b", {{"x", 1.5}});
    put({{"h0", ""}, {"", ""}, {"", ""}, {"", ""}, {"h1", ""}, {"h1", ""}, {"h2", ""}});
    std::vector<std::string> moved;
    for (const WantedMove& move : cluster.Decide(Config(2)).moves) moved.push_back(move.node_id);
    QCOMPARE(moved, (std::vector<std::string>{"i005", "i007"}));
  }

  void whatIsNotMeasuredIsLeftAlone() {
    Cluster cluster = BusyAndSpare();
    cluster.First("y").utilization = std::nullopt;  // All of a donor must be measured.
    QCOMPARE(cluster.Moves(), QString());
    cluster = BusyAndSpare();
    cluster.First("x").utilization = std::numeric_limits<double>::quiet_NaN();
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "x: not measured for long enough"));
    cluster = BusyAndSpare();
    cluster.Set("s").model.apps[0].stages[1].samples = 2;  // A donor with few measured jobs.
    QCOMPARE(cluster.Moves(), QString());
  }

  // A stage whose jobs take minutes ends few jobs in a window, but the utilisation of its instances
  // is known.
  void aSlowPoolGrowsByWhatItMeasures() {
    Cluster cluster;
    cluster.Instances("dit", 2, 1).Instances("", 3, 0).App("a", {{"dit", 9}});
    cluster.Set("s").model.apps[0].stages[0].samples = 2;
    QCOMPARE(cluster.Moves(Config(3)), QString(">dit"));  // 2 of 3 are busy then, which is enough.
    cluster.First("dit").utilization = 0.5;
    QCOMPARE(cluster.Moves(Config(3)), QString());
  }

  void aModelThatDoesNotLoadIsNotTriedForEver() {
    const auto moves = [](int failed_plans, int unloadable, int changed_s) {
      Cluster cluster = BusyAndSpare();
      cluster.Pool("w").min_instances = 1;  // It has no instance, so it comes first.
      cluster.Pool("w").failed_plans = failed_plans;
      cluster.Pool("w").unloadable = unloadable;
      cluster.Pool("w").changes = {cluster.view.now - seconds(changed_s)};
      cluster.Instances("", 4, 0);
      return cluster.Moves(Config(2));
    };
    QCOMPARE(moves(0, 0, 10), QString(">w >x"));
    QCOMPARE(moves(1, 0, 10), QString(">x"));
    QCOMPARE(moves(1, 0, 300), QString(">w >x"));
    QCOMPARE(moves(2, 0, 300), QString(">x"));
    QCOMPARE(moves(0, 1, 300), QString(">w >x"));
    QCOMPARE(moves(0, 2, 300), QString(">x"));
  }

  // A failure may be the pool's fault, so one instance finds out.
  void aPoolThatFailedIsTriedWithOneInstance() {
    Cluster cluster;
    cluster.Pool("w").min_instances = 3;
    cluster.Instances("", 4, 0);
    QCOMPARE(cluster.Moves(Config(4)), QString(">w >w >w"));
    cluster.Pool("w").failed_plans = 1;
    QCOMPARE(cluster.Moves(Config(4)), QString(">w"));
  }

  void aSetThatNobodyAsksGetsNothingOfOthers() {
    const auto moves = [](double load, bool idle) {
      Cluster cluster;
      cluster.Instances("y", 4, 0.4).App("a", {{"y", 1.6}});
      cluster.Pool("x", "typo").min_instances = 1;
      cluster.Pool("x", "typo").load_s = 10;
      if (load > 0) cluster.App("a", {{"x", load}}, "typo");
      if (idle) cluster.Instances("", 1, 0);
      return cluster.Moves();
    };
    QCOMPARE(moves(0, false), QString());
    QCOMPARE(moves(0, true), QString());
    QCOMPARE(moves(0.001, false), QString());  // The move would not pay.
    QCOMPARE(moves(0.001, true), QString(">x@typo"));
    QCOMPARE(moves(0.5, false), QString("y>x@typo"));
  }

  // Four times the pools may take sixteen times as long, but not sixty-four times: every pool may
  // be compared with every other, but not with every demand for each of them. The test measures
  // processor time, because other processes may be busy.
  void aLargeClusterIsDecidedOnSoon() {
    const auto seconds_for = [](int apps) {
      Cluster cluster;
      for (int app = 0; app < apps; ++app) {
        std::vector<std::pair<std::string, double>> loads;
        for (int stage = 0; stage < 4; ++stage) {
          loads.emplace_back("p" + std::to_string(4 * app + stage), 0.9);
          cluster.Instances(loads.back().first, 1, 0.9);
          cluster.Pool(loads.back().first).max_instances = 1;
        }
        cluster.App("a" + std::to_string(app), loads);
      }
      const std::clock_t begun = std::clock();
      if (!cluster.Decide(Config(32)).moves.empty()) qFatal("all pools are at their maximum");
      return static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
    };
    const double small = std::min({seconds_for(75), seconds_for(75), seconds_for(75)});
    const double large = std::min(seconds_for(300), seconds_for(300));
    qInfo("300 pools: %.4f s, 1200 pools: %.4f s, %.1f times as long", small, large, large / small);
    QVERIFY(large < 36 * small);
  }

  void flappingPoolsAreHeld() {
    Cluster cluster = BusyAndSpare();
    cluster.Past(700, "x", "y").Past(350, "y", "x");
    QCOMPARE(cluster.Moves(), QString());
    QVERIFY(Says(cluster.Decide(), "flapping: x"));
    QVERIFY(Says(cluster.Decide(), "flapping: y"));
    cluster.Instances("", 1, 0);  // A flapping pool may still take idle instances.
    QCOMPARE(cluster.Moves(), QString(">x"));
    cluster = BusyAndSpare();
    cluster.Past(700, "y", "x").Past(350, "y", "x");  // Twice the same way is no flapping.
    QCOMPARE(cluster.Moves(), QString("y>x"));
    cluster = BusyAndSpare();
    cluster.Past(1300, "x", "y").Past(350, "y", "x");  // The first move is too long ago.
    QCOMPARE(cluster.Moves(), QString("y>x"));
    cluster = BusyAndSpare();
    cluster.Past(700, "y", "").Past(350, "", "y");
    QCOMPARE(cluster.Moves(), QString());
  }

  void nearlyIdlePoolsGiveTheirInstancesBack() {
    Cluster cluster;
    cluster.Instances("x", 3, 0.13).App("a", {{"x", 0.4}});
    QCOMPARE(cluster.Moves(), QString("x>"));
    // The minimum keeps one instance.
    QCOMPARE(cluster.Moves(Config(10)), QString("x> x>"));
    cluster.Set("s").model.apps[0].stages[0].seconds_per_job = 0.8;
    QCOMPARE(cluster.Moves(Config(10)), QString("x>"));
    cluster.Set("s").model.apps[0].stages[0].seconds_per_job = 1.0;
    QCOMPARE(cluster.Moves(Config(10)), QString());
    cluster.Pool("x").min_instances = 3;
    cluster.Set("s").model.apps[0].stages[0].seconds_per_job = 0;
    QCOMPARE(cluster.Moves(Config(10)), QString());
  }

  // An instance that will soon be wanted elsewhere is not made idle first, because it would move
  // twice.
  void nobodyIsMadeIdleWhileAnotherPoolIsNearlyBusy() {
    const auto moves = [](double busy, const std::function<void(Cluster&)>& change = {}) {
      Cluster cluster;
      cluster.Instances("x", 1, busy).Instances("y", 3, 0.13).App("a", {{"x", busy}, {"y", 0.4}});
      if (change) change(cluster);
      return cluster.Moves(Config(3));
    };
    QCOMPARE(moves(0.65), QString("y> y>"));
    QCOMPARE(moves(0.75), QString());
    QCOMPARE(moves(0.9), QString("y>x"));
    // x must wait for its cooldown, and then it gets the instance.
    QCOMPARE(moves(0.9, [](Cluster& c) { c.Pool("x").changes = {c.view.now - seconds(10)}; }),
             QString());
    QCOMPARE(moves(0.9, [](Cluster& c) { c.Pool("x").max_instances = 1; }), QString("y> y>"));
  }

  void largeInstancesTakeSeveralDevices() {
    Cluster cluster;
    cluster.Instances("dit", 1, 1).Instances("enc", 12, 0.1).Instances("", 3, 0);
    cluster.App("a", {{"dit", 1.2}, {"enc", 1.2}});
    cluster.Pool("dit").resource = 8;
    // Five more devices are needed, all at once or none. The four moves only make nearly idle
    // instances idle.
    QCOMPARE(cluster.Moves(Config(4)), QString("enc> enc> enc> enc>"));
    QCOMPARE(cluster.Moves(Config(5)), QString("enc> enc> enc> enc> enc>"));
    cluster.Pool("enc").min_instances = 12;
    QCOMPARE(cluster.Moves(Config(9)), QString());
    cluster.Instances("", 5, 0);
    QCOMPARE(cluster.Moves(Config(9)), QString(">dit"));
    // A large instance becomes a small one, and its other devices become idle.
    Cluster large;
    large.Instances("dit", 3, 0.35).Instances("enc", 1, 1);
    large.App("a", {{"dit", 1}, {"enc", 1.2}});
    large.Pool("dit").resource = 8;
    QCOMPARE(large.Moves(), QString("dit>enc"));
  }

  void viewsThatMakeNoSenseEnd() {
    Cluster cluster = BusyAndSpare();
    cluster.view.pools.push_back(cluster.view.pools[0]);
    cluster.view.instances[0].workers = -3;
    cluster.view.instances[1].pool = "nowhere";
    cluster.view.instances[2].workflow_set = "nowhere";
    cluster.Pool("x").resource = -1;
    cluster.Set("s").model.apps[0].arrivals_per_s = std::numeric_limits<double>::infinity();
    cluster.Set("s").model.pools[0].workers = std::numeric_limits<double>::quiet_NaN();
    (void)cluster.Decide(Config(1000));
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::PolicyTest)
#include "policy_test.moc"
