// Tests what the leader makes of reports that are late, repeated, lost or impossible.
#include "nodemanager/load/load_window.h"

#include <QtTest>
#include <cmath>
#include <functional>
#include <limits>

#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::Duration kWindow = seconds(60);
const std::string kPool = "vae/wan/tiny";

bool Near(double actual, double expected, double tolerance) {
  const bool near = std::abs(actual - expected) <= tolerance;
  if (!near) qWarning("%g is not near %g", actual, expected);
  return near;
}

// A node that reports, and the window to which it reports.
struct Reporter {
  LoadWindow window{kWindow};
  base::ManualClock clock;
  v1::NodeLoad load;
  std::string node = "instance-1", pool = kPool;
  std::uint64_t incarnation = 1;

  Reporter() { load.set_workers(1); }

  v1::StageLoad& Stage(const std::string& app = "a", const std::string& stage = "vae") {
    for (v1::StageLoad& known : *load.mutable_stages()) {
      if (known.app_id() == app && known.stage() == stage) return known;
    }
    load.add_stages()->set_app_id(app);
    load.mutable_stages(load.stages_size() - 1)->set_stage(stage);
    return *load.mutable_stages(load.stages_size() - 1);
  }
  // Lets `jobs` jobs of `each` seconds end before the next report.
  void Work(int jobs, double each, const std::string& app = "a") {
    v1::StageLoad& stage = Stage(app);
    stage.set_jobs(stage.jobs() + static_cast<std::uint64_t>(jobs));
    stage.set_units(stage.units() + 2.0 * jobs);
    stage.set_compute_s(stage.compute_s() + jobs * each);
    stage.set_compute_squares_s2(stage.compute_squares_s2() + jobs * each * each);
  }
  void Ask(const std::string& app, std::uint64_t admitted, std::uint64_t rejected) {
    v1::Demand* demand = nullptr;
    for (v1::Demand& known : *load.mutable_demands()) {
      if (known.app_id() == app) demand = &known;
    }
    if (demand == nullptr) demand = load.add_demands();
    demand->set_app_id(app);
    demand->set_admitted(demand->admitted() + admitted);
    demand->set_rejected(demand->rejected() + rejected);
    demand->set_units(demand->units() + 4 * static_cast<double>(admitted + rejected));
  }
  std::string Report() {
    load.set_sample_unix_ms(base::ToUnixMs(clock.WallNow()));
    return window.Add(node, incarnation, pool, load, clock.Now());
  }
  // Reports that utilisation twice a second.
  void Run(base::Duration time, double utilization) {
    load.set_utilization(utilization);
    for (base::Duration at{}; at < time; at += milliseconds(500)) {
      clock.Advance(milliseconds(500));
      const std::string wrong = Report();
      if (!wrong.empty()) qFatal("%s", wrong.c_str());
    }
  }
  std::optional<double> Utilization() { return window.MeanUtilization(node, clock.Now()); }
  LoadWindow::Work WorkOf(const std::string& app = "a") {
    return window.WorkOf(kPool, clock.Now())[{app, "vae"}];
  }
};

}  // namespace

class LoadWindowTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void meansNeedHalfAWindow() {
    Reporter reporter;
    QVERIFY(!reporter.Utilization().has_value());
    reporter.Run(seconds(29), 0.8);
    QVERIFY(!reporter.Utilization().has_value());
    reporter.Run(seconds(2), 0.8);
    QVERIFY(Near(reporter.Utilization().value(), 0.8, 1e-9));
  }

  void theWindowSlides() {
    Reporter reporter;
    reporter.Run(seconds(600), 0.2);
    reporter.Run(seconds(30), 1.0);
    QVERIFY(Near(reporter.Utilization().value(), 0.6, 0.01));
    reporter.Run(seconds(30), 1.0);
    QVERIFY(Near(reporter.Utilization().value(), 1.0, 0.01));
  }

  void thinnedReportsHaveTheSameMean() {
    Reporter reporter;
    reporter.load.set_utilization(0);
    double sum = 0;
    int count = 0;
    for (int i = 0; i < 60'000; ++i) {  // A thousand reports per second.
      const double utilization = (i * 7919 % 1000) / 999.0;
      reporter.load.set_utilization(utilization);
      reporter.clock.Advance(milliseconds(1));
      QCOMPARE(reporter.Report(), std::string());
      if (i > 0) sum += utilization, ++count;
    }
    QVERIFY(Near(reporter.Utilization().value(), sum / count, 1e-6));
  }

  void silenceIsNotZero() {
    Reporter reporter;
    reporter.Run(seconds(60), 0.9);
    reporter.clock.Advance(seconds(7));
    QVERIFY(!reporter.Utilization().has_value());
    // When the node reports again, its silence is not part of the mean.
    reporter.Run(seconds(10), 0.9);
    QVERIFY(Near(reporter.Utilization().value(), 0.9, 1e-9));
    reporter.clock.Advance(seconds(61));
    reporter.Run(seconds(20), 0.9);
    QVERIFY(!reporter.Utilization().has_value());
  }

  void lostAndRepeatedReportsChangeNothing() {
    Reporter all, some;
    for (int i = 0; i < 100; ++i) {
      all.Work(1, 0.25);
      some.Work(1, 0.25);
      all.Run(milliseconds(500), 0.5);
      some.load.set_utilization(0.5);
      some.clock.Advance(milliseconds(500));
      for (int copy = i % 3; copy > 0; --copy) QCOMPARE(some.Report(), std::string());
    }
    const LoadWindow::Work expected = all.WorkOf(), actual = some.WorkOf();
    QCOMPARE(expected.jobs, 99u);  // Counting begins with the first report.
    QVERIFY(Near(static_cast<double>(actual.jobs), 99, 3));
    QVERIFY(Near(actual.compute_s / static_cast<double>(actual.jobs), 0.25, 1e-9));
    QVERIFY(Near(actual.units / static_cast<double>(actual.jobs), 2, 1e-9));
    QVERIFY(Near(some.Utilization().value(), all.Utilization().value(), 1e-9));
  }

  void workLeavesTheWindowAndTheLastStays() {
    Reporter reporter;
    reporter.Run(seconds(1), 0.5);
    for (int i = 0; i < 100; ++i) {
      reporter.Work(1, 0.5);
      reporter.Run(seconds(1), 0.5);
    }
    QVERIFY(Near(static_cast<double>(reporter.WorkOf().jobs), 60, 2));
    reporter.Run(seconds(30), 0);
    QVERIFY(Near(static_cast<double>(reporter.WorkOf().jobs), 30, 2));
    QVERIFY(Near(reporter.WorkOf().recent_compute_s, 15, 1));
    reporter.Run(seconds(300), 0);  // No job ends in the window, so the last ones stay.
    QCOMPARE(reporter.WorkOf().jobs, 5u);
    QVERIFY(Near(reporter.WorkOf().squares_s2, 1.25, 1e-9));
    QCOMPARE(reporter.WorkOf().recent_compute_s, 0.0);
    QVERIFY(reporter.window.WorkOf("another", reporter.clock.Now()).empty());
  }

  // The job ends elsewhere, so no report here counts it, but its time here counts.
  void aJobThatIsHandedOverCostsItsTimeHereToo() {
    Reporter reporter;
    reporter.Run(seconds(1), 1);
    reporter.Stage().set_compute_s(2);
    reporter.Run(seconds(2), 1);
    QCOMPARE(reporter.WorkOf().jobs, 0u);
    QCOMPARE(reporter.WorkOf().recent_compute_s, 2.0);
    reporter.Work(1, 1);
    reporter.Run(seconds(1), 1);
    QCOMPARE(reporter.WorkOf().jobs, 1u);
    QCOMPARE(reporter.WorkOf().compute_s, 3.0);
    QCOMPARE(reporter.WorkOf().squares_s2, 1.0);
  }

  // Each job takes longer than a window.
  void slowJobsAreKnownAllTheSame() {
    Reporter reporter;
    reporter.Run(seconds(1), 1);
    for (int i = 1; i <= 8; ++i) {
      reporter.Run(seconds(100), 1);
      reporter.Work(1, 100);
      reporter.Run(seconds(1), 1);
      QCOMPARE(reporter.WorkOf().jobs, static_cast<std::uint64_t>(std::min(i, 5)));
    }
    QCOMPARE(reporter.WorkOf().compute_s, 500.0);
    QCOMPARE(reporter.WorkOf().recent_compute_s, 100.0);
  }

  void anApplicationThatPausesIsKnownWhileOthersWork() {
    Reporter reporter;
    reporter.Run(seconds(1), 1);
    reporter.Work(7, 0.3, "b");
    for (int i = 0; i < 200; ++i) {
      reporter.Work(1, 0.1);
      reporter.Run(seconds(1), 1);
    }
    QVERIFY(Near(reporter.WorkOf("b").compute_s / static_cast<double>(reporter.WorkOf("b").jobs),
                 0.3, 1e-9));
    QCOMPARE(reporter.WorkOf("b").recent_compute_s, 0.0);
    QVERIFY(Near(static_cast<double>(reporter.WorkOf().jobs), 60, 2));
  }

  // After a failover the counts in a node's first report are older than the new leader.
  void theFirstReportTellsTheCosts() {
    Reporter reporter;
    reporter.Work(4000, 0.2);
    reporter.Work(3, 5000, "absurd");
    reporter.Run(milliseconds(500), 1);
    QVERIFY(
        Near(reporter.WorkOf().compute_s / static_cast<double>(reporter.WorkOf().jobs), 0.2, 1e-9));
    QCOMPARE(reporter.WorkOf().recent_compute_s, 0.0);
    QCOMPARE(reporter.WorkOf("absurd").jobs, 0u);
    reporter.Work(5, 0.4);  // Enough measured jobs replace those counts.
    reporter.Run(milliseconds(500), 1);
    QCOMPARE(reporter.WorkOf().jobs, 5u);
    QVERIFY(Near(reporter.WorkOf().compute_s, 2, 1e-9));
  }

  void instancesOfAPoolAddUp() {
    Reporter reporter;
    v1::NodeLoad other;
    reporter.Run(seconds(1), 0.5);
    reporter.window.Add("instance-2", 9, kPool, reporter.load, reporter.clock.Now());
    reporter.Work(3, 0.1);
    reporter.Work(2, 0.2, "b");
    reporter.Run(seconds(1), 0.5);
    reporter.window.Add("instance-2", 9, kPool, reporter.load, reporter.clock.Now());
    QCOMPARE(reporter.WorkOf("a").jobs, 6u);
    QCOMPARE(reporter.WorkOf("b").jobs, 4u);
    // What the node has done stays after the node is forgotten.
    reporter.window.Forget("instance-2");
    QCOMPARE(reporter.WorkOf("a").jobs, 6u);
  }

  void aNewIncarnationBeginsAnew() {
    Reporter reporter;
    reporter.Work(10, 0.1);
    reporter.Run(seconds(60), 0.9);
    reporter.incarnation = 2;
    reporter.load.clear_stages();
    reporter.Work(3, 0.1);
    reporter.Run(seconds(20), 0.1);
    QVERIFY(!reporter.Utilization().has_value());
    QCOMPARE(reporter.WorkOf().jobs, 13u);  // All ended before a first report.
    QCOMPARE(reporter.WorkOf().recent_compute_s, 0.0);
    reporter.Work(2, 0.1);
    reporter.Run(seconds(20), 0.1);
    QCOMPARE(reporter.WorkOf().jobs, 15u);
    QVERIFY(Near(reporter.Utilization().value(), 0.1, 1e-9));
    reporter.incarnation = 1;  // A late report of the dead incarnation.
    reporter.Work(100, 0.1);
    QVERIFY(!reporter.Report().empty());
    QCOMPARE(reporter.WorkOf().jobs, 15u);
  }

  void anotherPoolBeginsAnew() {
    Reporter reporter;
    reporter.Run(seconds(60), 0.9);
    reporter.pool = "diffusion/wan/tiny";
    reporter.Work(4, 0.1);  // They ended before it moved.
    reporter.Run(seconds(20), 0.1);
    QVERIFY(!reporter.Utilization().has_value());
    QCOMPARE(reporter.WorkOf().jobs, 4u);
    QVERIFY(reporter.window.WorkOf(reporter.pool, reporter.clock.Now()).empty());
    reporter.Run(seconds(15), 0.1);
    QVERIFY(Near(reporter.Utilization().value(), 0.1, 1e-9));
  }

  void debtsThatCannotBeAreLeftOut() {
    Reporter reporter;
    const auto debts = [&] { return reporter.window.Last(reporter.node)->debts(); };
    const auto add = [&](const std::string& pool, double seconds) {
      v1::PoolDebt& debt = *reporter.load.add_debts();
      debt.set_pool(pool);
      debt.set_seconds(seconds);
    };
    add("good", 7);
    QCOMPARE(reporter.Report(), std::string());
    for (const double bad : {std::nan(""), -1.0, 1e9}) add("bad", bad);
    add("good", 8);
    add("", 8);
    reporter.clock.Advance(milliseconds(500));
    QVERIFY(reporter.Report().find("absurd") != std::string::npos);
    QCOMPARE(debts().size(), 1);
    QCOMPARE(debts()[0].seconds(), 7.0);
    for (int i = 0; i < 300; ++i) add(std::to_string(i), 1);
    reporter.clock.Advance(milliseconds(500));
    QVERIFY(reporter.Report().find("a debt in pool") != std::string::npos);
    QCOMPARE(debts().size(), 256);
  }

  void nonsenseIsLeftOutAndNamed_data() {
    QTest::addColumn<std::function<void(Reporter&)>>("spoil");
    QTest::addColumn<QString>("complaint");
    const auto row = [](const char* name, std::function<void(Reporter&)> spoil, QString what) {
      QTest::newRow(name) << spoil << what;
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinite = std::numeric_limits<double>::infinity();
    for (const double bad : {nan, -0.1, 1.2, infinite, 1e300}) {
      row(
          qPrintable(QString("utilisation %1").arg(bad)),
          [bad](Reporter& r) { r.load.set_utilization(bad); }, "utilisation");
    }
    for (const double bad : {nan, -1.0, infinite}) {
      row(
          qPrintable(QString("compute %1").arg(bad)),
          [bad](Reporter& r) { r.Stage().set_compute_s(bad); }, "compute time falls");
      row(
          qPrintable(QString("squares %1").arg(bad)),
          [bad](Reporter& r) { r.Stage().set_compute_squares_s2(bad); }, "compute time falls");
      row(
          qPrintable(QString("units %1").arg(bad)),
          [bad](Reporter& r) { r.Stage().set_units(bad); }, "units");
      row(
          qPrintable(QString("queued %1").arg(bad)),
          [bad](Reporter& r) { r.Stage().set_queued_s(bad); }, "queueing");
      row(
          qPrintable(QString("transfer %1").arg(bad)),
          [bad](Reporter& r) { r.Stage().set_transfer_s(bad); }, "transfer");
      row(
          qPrintable(QString("load %1").arg(bad)),
          [bad](Reporter& r) { r.Stage().set_load_s(bad); }, "load time");
    }
    row(
        "fewer jobs", [](Reporter& r) { r.Stage().set_jobs(1); }, "job count falls");
    row(
        "fewer failures", [](Reporter& r) { r.Stage().set_failures(r.Stage().failures() - 1); },
        "job count falls");
    row(
        "many jobs", [](Reporter& r) { r.Stage().set_jobs(1ULL << 60); }, "more jobs");
    row(
        "much time", [](Reporter& r) { r.Stage().set_compute_s(1e6); }, "more compute time");
    row(
        "large squares", [](Reporter& r) { r.Stage().set_compute_squares_s2(1e9); }, "squares");
    row(
        "workers", [](Reporter& r) { r.load.set_workers(-4); }, "workers");
    row(
        "too many workers", [](Reporter& r) { r.load.set_workers(1 << 30); }, "workers");
    row(
        "negative queue", [](Reporter& r) { r.load.set_queued_jobs(-1); }, "negative count");
    row(
        "an entry twice", [](Reporter& r) { *r.load.add_stages() = r.Stage(); }, "twice");
    row(
        "demand falls", [](Reporter& r) { r.load.mutable_demands(0)->set_admitted(0); }, "demand");
    row(
        "many entries",
        [](Reporter& r) {
          for (int i = 0; i < 1100; ++i) r.load.add_stages()->set_app_id(std::to_string(i));
        },
        "more than 1024");
  }
  void nonsenseIsLeftOutAndNamed() {
    QFETCH(std::function<void(Reporter&)>, spoil);
    QFETCH(QString, complaint);
    Reporter reporter;
    reporter.load.set_queued_jobs(3);
    reporter.Stage().set_failures(2);
    reporter.Ask("a", 5, 0);
    reporter.Run(seconds(40), 0.4);
    reporter.Work(8, 0.25);
    reporter.Run(seconds(1), 0.4);
    const v1::NodeLoad good = reporter.load;
    spoil(reporter);
    reporter.clock.Advance(milliseconds(500));
    const std::string wrong = reporter.Report();
    QVERIFY2(QString::fromStdString(wrong).contains(complaint), wrong.c_str());
    reporter.load = good;
    reporter.Work(2, 0.25);
    reporter.Run(seconds(1), 0.4);  // Good reports are believed again.
    QVERIFY(Near(reporter.Utilization().value(), 0.4, 1e-9));
    const LoadWindow::Work work = reporter.WorkOf();
    QCOMPARE(work.jobs, 10u);
    QVERIFY(Near(work.compute_s, 2.5, 1e-9));
    QVERIFY(Near(work.squares_s2, 0.625, 1e-9));
    QVERIFY(Near(work.units, 20, 1e-9));
    QCOMPARE(work.queued_s, 0.0);
    QCOMPARE(work.transfer_s, 0.0);
    const v1::NodeLoad& last = *reporter.window.Last(reporter.node);
    QCOMPARE(last.workers(), 1);
    QCOMPARE(last.queued_jobs(), 3);
    QVERIFY(Near(last.utilization(), 0.4, 1e-9));
  }

  void devicesAreBelievedAsFarAsTheyCanBe() {
    Reporter reporter;
    const auto report = [&] {
      reporter.clock.Advance(milliseconds(500));
      return reporter.Report();
    };
    v1::DeviceLoad& good = *reporter.load.add_devices();
    good.set_device("cuda:0");
    good.set_product("NVIDIA H100 80GB HBM3");
    good.set_sm_active(0.5);
    good.set_kernel_active(1.02);  // Two clocks can give a little more than 1.
    good.set_memory_used_bytes(1);
    good.set_memory_bytes(2);
    good.set_power_w(0);
    good.set_temperature_c(-5);
    QCOMPARE(report(), std::string());
    const auto last = [&] { return reporter.window.Last(reporter.node)->devices(); };
    v1::DeviceLoad expected = good;
    expected.set_kernel_active(1);
    QCOMPARE(last()[0].DebugString(), expected.DebugString());
    QVERIFY(!last()[0].has_memory_active());
    const double nan = std::numeric_limits<double>::quiet_NaN();
    v1::DeviceLoad& bad = *reporter.load.add_devices();
    bad.set_device(std::string(1000, 'x'));
    bad.set_product(std::string(1000, 'x'));
    bad.set_sm_active(nan);
    bad.set_kernel_active(-0.1);
    bad.set_memory_active(7);
    bad.set_process_active(nan);
    bad.set_memory_used_bytes(3);
    bad.set_memory_bytes(2);
    bad.set_power_w(1e9);
    bad.set_power_limit_w(-1);
    bad.set_temperature_c(std::numeric_limits<double>::infinity());
    QVERIFY(report().find("says what cannot be") != std::string::npos);
    expected.Clear();
    expected.set_device(std::string(64, 'x'));
    expected.set_product(std::string(128, 'x'));
    expected.set_memory_bytes(2);
    QCOMPARE(last()[1].DebugString(), expected.DebugString());
    bad.Clear();
    bad.set_device("cuda:1");
    bad.set_memory_used_bytes(-1);
    bad.set_memory_bytes(std::numeric_limits<std::int64_t>::max());
    (void)report();
    QVERIFY(!last()[1].has_memory_used_bytes() && !last()[1].has_memory_bytes());
    bad.set_device("cuda:0");
    QVERIFY(report().find("twice") != std::string::npos);
    QCOMPARE(last().size(), 1);
    for (int i = 1; i < 100; ++i) reporter.load.add_devices()->set_device(std::to_string(i));
    QVERIFY(report().find("more than 16 devices") != std::string::npos);
    QCOMPARE(last().size(), 16);
  }

  // Two instances, of which each tells the sums of all its jobs so far.
  void termsAddUpOverInstancesAndLeaveOutWhatWasBefore() {
    Reporter reporter;
    const auto tell = [&](int jobs, double x, double y) {
      v1::StageLoad& stage = reporter.Stage();
      stage.set_jobs(static_cast<std::uint64_t>(jobs));
      stage.set_units(jobs);
      stage.set_compute_s(jobs * y);
      stage.set_compute_squares_s2(jobs * y * y);
      v1::CostSums& sums = *stage.mutable_cost_sums();
      sums.Clear();
      sums.set_jobs(static_cast<std::uint64_t>(jobs));
      for (const double xx : {1.0, x, x * x}) sums.add_xx(jobs * xx);
      for (const double xy : {y, x * y}) sums.add_xy(jobs * xy);
      sums.set_yy(jobs * y * y);
      reporter.clock.Advance(seconds(1));
      return reporter.Report();
    };
    const auto terms = [&] { return reporter.WorkOf().terms; };
    QCOMPARE(tell(100, 2, 3), std::string());
    QCOMPARE(tell(110, 2, 3), std::string());
    QCOMPARE(terms().terms, 2);
    QCOMPARE(terms().jobs, std::uint64_t{10});
    QVERIFY(Near(terms().xx[2], 40, 1e-9) && Near(terms().xy[1], 60, 1e-9));
    QVERIFY(Near(terms().yy, 90, 1e-9));
    // Sums that cannot be are left out, and the next good ones count.
    const v1::NodeLoad good = reporter.load;
    for (const auto& spoil : std::vector<std::function<void(v1::CostSums&)>>{
             [](v1::CostSums& sums) { sums.set_xx(0, std::nan("")); },
             [](v1::CostSums& sums) { sums.set_xx(1, -1); },
             [](v1::CostSums& sums) { sums.set_xy(0, 1e9); },
             [](v1::CostSums& sums) { sums.add_xx(1); },
             [](v1::CostSums& sums) { sums.clear_xy(); },
             [](v1::CostSums& sums) { sums.set_jobs(1 << 20); }}) {
      reporter.load = good;
      spoil(*reporter.Stage().mutable_cost_sums());
      reporter.clock.Advance(milliseconds(10));
      const std::string wrong = reporter.Report();
      QVERIFY2(wrong.find("cost sums") != std::string::npos, wrong.c_str());
      QCOMPARE(terms().jobs, std::uint64_t{10});
    }
    reporter.load = good;
    reporter.node = "instance-2";
    QCOMPARE(tell(200, 2, 3), std::string());
    QCOMPARE(tell(205, 2, 3), std::string());
    QCOMPARE(terms().jobs, std::uint64_t{15});
  }

  void aLongJobIsNoNonsense() {
    Reporter reporter;
    reporter.Run(seconds(1), 1);
    reporter.Work(1, 208);  // It began before the first report.
    reporter.Run(seconds(1), 1);
    QCOMPARE(reporter.WorkOf().jobs, 1u);
    Reporter failed_over;  // Its first report to a new leader has the counts of hours.
    failed_over.Work(100'000'000, 0.1);
    failed_over.Run(seconds(1), 1);
    QCOMPARE(failed_over.WorkOf().jobs, 100'000'000u);
  }

  void entriesThatAreLeftOutDoNotBeginAtZero() {
    Reporter reporter;
    reporter.Work(10, 0.1);
    reporter.Run(seconds(1), 0.5);
    const v1::NodeLoad complete = reporter.load;
    reporter.load.clear_stages();
    reporter.Run(seconds(1), 0.5);
    reporter.load = complete;
    reporter.Run(seconds(1), 0.5);
    QCOMPARE(reporter.WorkOf().jobs, 10u);  // Jobs from before the first report count once.
    QCOMPARE(reporter.WorkOf().recent_compute_s, 0.0);
  }

  void clockSkewShowsAndHarmsNothing() {
    Reporter reporter;
    reporter.Run(seconds(40), 0.5);
    const auto last = [&] { return *reporter.window.Last(reporter.node); };
    QVERIFY(!last().has_clock_skew_ms());
    const auto add = [&](std::int64_t skew_ms) {
      reporter.clock.Advance(milliseconds(500));
      reporter.load.set_sample_unix_ms(base::ToUnixMs(reporter.clock.WallNow()) + skew_ms);
      reporter.load.set_clock_skew_ms(skew_ms);
      return reporter.window.Add(reporter.node, 1, kPool, reporter.load, reporter.clock.Now());
    };
    QCOMPARE(add(-7'200'000), std::string());
    QCOMPARE(last().clock_skew_ms(), -7'200'000);
    QCOMPARE(add(86'400'000), std::string());
    QCOMPARE(last().clock_skew_ms(), 86'400'000);
    for (const std::int64_t absurd : {std::numeric_limits<std::int64_t>::max() / 2,
                                      std::numeric_limits<std::int64_t>::min() / 2}) {
      QVERIFY(!add(absurd).empty());
      QVERIFY(!last().has_clock_skew_ms());
    }
    QVERIFY(Near(reporter.Utilization().value(), 0.5, 1e-9));
  }

  void timeThatStandsStillOrFallsEndsNothing() {
    Reporter reporter;
    reporter.Run(seconds(40), 0.5);
    for (int i = 0; i < 3; ++i) QCOMPARE(reporter.Report(), std::string());
    QCOMPARE(reporter.window.Add(reporter.node, 1, kPool, reporter.load,
                                 reporter.clock.Now() - seconds(30)),
             std::string());
    QVERIFY(Near(reporter.Utilization().value(), 0.5, 1e-9));
  }

  void proxiesTellWhatTheyAreAskedFor() {
    Reporter proxy;
    proxy.node = "proxy-1";
    proxy.pool = "";
    proxy.Ask("a", 1000, 50);  // Before the first report, so it does not count.
    proxy.Run(milliseconds(500), 0);
    for (int i = 0; i < 60; ++i) {
      proxy.Ask("a", 2, 3);
      if (i % 2 == 0) proxy.Ask("b", 0, 1);
      proxy.Run(seconds(1), 0);
    }
    auto asked = proxy.window.AskedOf({"proxy-1", "nobody"}, proxy.clock.Now());
    QVERIFY(Near(asked["a"].jobs_per_s, 5, 0.2));
    QVERIFY(Near(asked["a"].rejected_per_s, 3, 0.1));
    QVERIFY(Near(asked["b"].jobs_per_s, 0.5, 0.05));
    QVERIFY(Near(asked["a"].units_per_s, 20, 0.8));
    QVERIFY(Near(asked["a"].JobsOf(8), 2.5, 0.1));
    QVERIFY(Near(asked["a"].JobsOf(0), 5, 0.2));  // The units of a job are unknown.
    QVERIFY(proxy.window.AskedOf({}, proxy.clock.Now()).empty());
    proxy.Run(seconds(62), 0);  // Nobody asks any more.
    QVERIFY(proxy.window.AskedOf({"proxy-1"}, proxy.clock.Now()).empty());
  }

  void proxiesTellTheTermsOfWhatTheyAreAskedFor() {
    Reporter proxy;
    proxy.node = "proxy-1";
    proxy.pool = "";
    const auto ask = [&](double size, const std::string& stage = "dit") {
      proxy.Ask("a", 2, 0);
      v1::Demand& demand = *proxy.load.mutable_demands(0);
      if (demand.stage_terms().empty()) {
        demand.add_stage_terms()->set_stage(stage);
        for (int i = 0; i < 2; ++i) demand.mutable_stage_terms(0)->add_sums(0);
      }
      v1::StageTerms& terms = *demand.mutable_stage_terms(0);
      terms.set_sums(0, terms.sums(0) + 2);
      terms.set_sums(1, terms.sums(1) + 2 * size);
      proxy.clock.Advance(seconds(1));
      return proxy.Report();
    };
    const std::vector<double> costs = {0.5, 0.01};
    QCOMPARE(ask(1e9), std::string());  // Before the first report, so it does not count.
    for (int i = 0; i < 60; ++i) QCOMPARE(ask(100), std::string());
    const auto seconds_of = [&](const std::vector<double>& of) {
      return proxy.window.AskedOf({"proxy-1"}, proxy.clock.Now())["a"].SecondsOf("dit", of);
    };
    QVERIFY(Near(*seconds_of(costs), 2 * (0.5 + 0.01 * 100), 0.1));
    QVERIFY(
        Near(*proxy.window.AskedLately("proxy-1", proxy.clock.Now())["a"].SecondsOf("dit", costs),
             3, 0.1));
    QVERIFY(!seconds_of({1}).has_value());
    // Sums that cannot be are left out.
    const v1::NodeLoad good = proxy.load;
    for (const double bad : {std::nan(""), -1.0, 5.0}) {
      proxy.load = good;
      proxy.load.mutable_demands(0)->mutable_stage_terms(0)->set_sums(1, bad);
      proxy.clock.Advance(milliseconds(10));
      QVERIFY(proxy.Report().find("terms of a") != std::string::npos);
      QVERIFY(Near(*seconds_of(costs), 3, 0.1));
    }
    // Half of the jobs come through a proxy of an earlier version. They count as the mean.
    proxy.load = good;
    const auto asked = [&] {
      auto sum = proxy.window.AskedOf({"proxy-1"}, proxy.clock.Now())["a"];
      sum.jobs_per_s *= 2;
      return sum;
    };
    QVERIFY(Near(*asked().SecondsOf("dit", costs), 6, 0.2));
    // The workflow has changed: the new formula counts.
    proxy.load.mutable_demands(0)->mutable_stage_terms(0)->clear_sums();
    proxy.load.mutable_demands(0)->mutable_stage_terms(0)->add_sums(0);
    proxy.Ask("a", 2, 0);
    proxy.load.mutable_demands(0)->mutable_stage_terms(0)->set_sums(0, 8);
    proxy.clock.Advance(seconds(1));
    QCOMPARE(proxy.Report(), std::string());
    QVERIFY(seconds_of({1}).has_value());
    QVERIFY(!seconds_of(costs).has_value());
  }

  void aProxyThatIsNewIsNotDividedByAWindow() {
    Reporter proxy;
    proxy.Run(milliseconds(500), 0);
    for (int i = 0; i < 10; ++i) {
      proxy.Ask("a", 4, 0);
      proxy.Run(seconds(1), 0);
    }
    const auto asked = proxy.window.AskedOf({proxy.node}, proxy.clock.Now());
    QVERIFY(Near(asked.at("a").jobs_per_s, 4, 0.1));
  }

  void loadTimesAreOfTheStage() {
    Reporter reporter;
    QVERIFY(!reporter.window.LoadSeconds("vae").has_value());
    reporter.Stage().set_load_s(12);
    reporter.Run(seconds(1), 0);
    reporter.Stage().set_load_s(8);
    reporter.Run(seconds(1), 0);
    QVERIFY(Near(reporter.window.LoadSeconds("vae").value(), 8, 0));
  }

  void silentNodesAndFloodsAreForgotten() {
    Reporter reporter;
    reporter.Run(seconds(10), 0.5);
    QVERIFY(reporter.window.Last("instance-1") != nullptr);
    reporter.clock.Advance(seconds(61));
    reporter.node = "instance-2";
    reporter.Run(seconds(1), 0.5);
    QVERIFY(reporter.window.Last("instance-1") == nullptr);
    reporter.window.Forget("instance-2");
    QVERIFY(reporter.window.Last("instance-2") == nullptr);
    // The node names another stage in every report.
    for (int i = 0; i < 1100; ++i) {
      reporter.load.clear_stages();
      reporter.Stage("a", "stage" + std::to_string(i)).set_jobs(1);
      reporter.clock.Advance(milliseconds(1));
      (void)reporter.Report();
    }
    QVERIFY(reporter.window.Last("instance-2")->stages_size() <= 1024);
    QVERIFY(reporter.window.WorkOf(kPool, reporter.clock.Now()).size() <= LoadWindow::kMaxWorks);
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::LoadWindowTest)
#include "load_window_test.moc"
