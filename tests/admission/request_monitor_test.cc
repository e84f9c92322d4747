#include <QtTest>
#include <cmath>
#include <random>

#include "cluster/base/seconds.h"
#include "tests/admission/gate.h"
#include "tests/test_main.h"

namespace onepiece::admission {

class RequestMonitorTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Admit_PricesAJobByTheTermsOfItsCost() {
    v1::Capacity capacity = OnePool(1);  // A second for a unit, if nothing better is known.
    for (const double seconds : {3.0, 0.5, 0.25})
      capacity.mutable_costs(0)->add_seconds_per_term(seconds);
    Gate gate(capacity);
    const auto price = [&](const std::vector<double>& terms) {
      AdmissionRequest job = gate.Job("", 4);
      job.stages[0].terms = terms;
      const double before = gate.monitor.levels()[0].seconds;
      if (!gate.monitor.Admit(job).ok()) return -1.0;
      const double paid = before - gate.monitor.levels()[0].seconds;
      gate.monitor.Withdraw(job.uid);
      return paid;
    };
    QCOMPARE(price({1, 4, 16}), 3 + 2 + 4.0);
    QCOMPARE(price({1, 8, 64}), 3 + 4 + 16.0);
    QCOMPARE(price({1, kNan, -16}), 3.0);
    QCOMPARE(price({}), 4.0);      // An older proxy's job.
    QCOMPARE(price({1, 4}), 4.0);  // The workflow has changed since.
    for (const double bad : {kNan, -1.0}) {
      capacity.mutable_costs(0)->set_seconds_per_term(2, bad);
      gate.monitor.Update(capacity);
      QCOMPARE(price({1, 4, 16}), 5.0);
    }
  }

  void SetLimits_KeepsWhatIsIn() {
    Gate gate(OnePool(0.1, 1), 1, 3);
    std::vector<base::Uid> in;
    for (int i = 0; i < 3; ++i) {
      const AdmissionRequest job = gate.Job();
      QVERIFY(gate.monitor.Admit(job).ok());
      in.push_back(job.uid);
    }
    gate.monitor.SetLimits(2, 0.5);
    QCOMPARE(gate.monitor.in_flight(), 3);
    QCOMPARE(Reason(gate.monitor.Admit(gate.Job())), std::string("QUOTA"));
    gate.monitor.End(in[0]);
    QCOMPARE(Reason(gate.monitor.Admit(gate.Job())), std::string("QUOTA"));
    gate.monitor.End(in[1]);
    QVERIFY(gate.Ask());
    // Half of the rate from the next capacity on: a pool of one worker saves up half a second.
    gate.monitor.Update(OnePool(0.1, 1));
    gate.clock.Advance(60s);
    QCOMPARE(gate.monitor.levels()[0].seconds, 0.5);
    gate.monitor.SetLimits(4, 0.5);
    QVERIFY(gate.Ask() && gate.Ask());
    QCOMPARE(Reason(gate.monitor.Admit(gate.Job())), std::string("QUOTA"));
  }

  void Admit_RefusesAtTheLimitAndSaysWhenToRetry() {
    Gate gate({}, 1, 2);
    const AdmissionRequest first = gate.Job();
    QVERIFY(gate.monitor.Admit(first).ok());
    QVERIFY(gate.Ask());
    const absl::Status refused = gate.monitor.Admit(gate.Job());
    QCOMPARE(refused.code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(refused), std::string("QUOTA"));
    QVERIFY(RetryS(refused) > 0);
    QVERIFY(gate.monitor.Admit(first).ok());
    QCOMPARE(gate.monitor.in_flight(), 2);
    gate.monitor.End(first.uid);
    gate.monitor.End(first.uid);
    QCOMPARE(gate.monitor.in_flight(), 1);
    QVERIFY(!gate.monitor.Contains(first.uid));
    QVERIFY(gate.Ask());
  }

  void Admit_ForgetsJobsPastTheirDeadline() {
    Gate gate({}, 1, 1);
    AdmissionRequest request = gate.Job();
    request.deadline = gate.clock.WallNow() + 10s;
    QVERIFY(gate.monitor.Admit(request).ok());
    gate.clock.Advance(9s);
    QVERIFY(!gate.Ask());
    gate.clock.Advance(1s);
    QVERIFY(gate.Ask());
    QCOMPARE(gate.monitor.in_flight(), 1);
  }

  void NextToCheck_GoesRound() {
    Gate gate({}, 1, 10);
    std::vector<base::Uid> uids;
    for (int i = 0; i < 5; ++i) {
      AdmissionRequest request = gate.Job();
      request.deadline = gate.clock.WallNow() + 10s;
      uids.push_back(request.uid);
      QVERIFY(gate.monitor.Admit(request).ok());
      gate.monitor.Keep(request.uid);
    }
    QVERIFY((gate.monitor.NextToCheck(3) == std::vector{uids[0], uids[1], uids[2]}));
    gate.monitor.End(uids[3]);
    QVERIFY((gate.monitor.NextToCheck(3) == std::vector{uids[4], uids[0], uids[1]}));
    QCOMPARE(gate.monitor.NextToCheck(100).size(), std::size_t{4});
    gate.clock.Advance(10s);
    QVERIFY(gate.monitor.NextToCheck(100).empty());
  }

  /// The record of a job that has not begun may not be there yet. A caller that looks would take
  /// the job for gone.
  void NextToCheck_LeavesOutWhatHasNotBegun() {
    Gate gate({}, 1, 10);
    const AdmissionRequest begun = gate.Job(), coming = gate.Job(), withdrawn = gate.Job();
    for (const AdmissionRequest& request : {coming, withdrawn, begun})
      QVERIFY(gate.monitor.Admit(request).ok());
    gate.monitor.Keep(begun.uid);
    gate.monitor.Withdraw(withdrawn.uid);
    QVERIFY((gate.monitor.NextToCheck(100) == std::vector{begun.uid}));
    gate.monitor.Keep(coming.uid);
    QVERIFY((gate.monitor.NextToCheck(100) == std::vector{begun.uid, coming.uid}));
    gate.monitor.End(begun.uid);
    QVERIFY((gate.monitor.NextToCheck(100) == std::vector{coming.uid}));
  }

  void Rate_IsThatOfTheNarrowestStage_data() {
    QTest::addColumn<double>("x");
    QTest::addColumn<double>("y");
    QTest::addColumn<int>("x_workers");
    QTest::addColumn<int>("y_workers");
    QTest::addColumn<double>("share");
    QTest::addColumn<double>("rate");
    QTest::newRow("1 and 3 s") << 1.0 << 3.0 << 1 << 1 << 1.0 << 1.0 / 3;
    QTest::newRow("3 and 1 s") << 3.0 << 1.0 << 1 << 1 << 1.0 << 1.0 / 3;
    QTest::newRow("three workers for y") << 1.0 << 3.0 << 1 << 3 << 1.0 << 1.0;
    QTest::newRow("6 and 4 workers") << 1.0 << 3.0 << 6 << 4 << 1.0 << 4.0 / 3;
    QTest::newRow("two thirds of it") << 1.0 << 3.0 << 1 << 3 << 2.0 / 3 << 2.0 / 3;
    QTest::newRow("short jobs") << 0.01 << 0.02 << 1 << 1 << 1.0 << 50.0;
  }
  void Rate_IsThatOfTheNarrowestStage() {
    QFETCH(double, x);
    QFETCH(double, y);
    QFETCH(int, x_workers);
    QFETCH(int, y_workers);
    QFETCH(double, share);
    QFETCH(double, rate);
    Gate gate(TwoStages(x, y, x_workers, y_workers), share);
    gate.Press(60s);  // This uses up what the idle pool had saved up.
    const double admitted = gate.Press(600s);
    QVERIFY2(std::abs(admitted / 600 / rate - 1) < 0.02, std::to_string(admitted).c_str());
  }

  void Rate_OfAPoolThatStagesShareIsThatOfTheirSum() {
    v1::Capacity capacity;
    AddPool(capacity, "both", 2);
    AddCost(capacity, "app", "x", 1, "both");
    AddCost(capacity, "app", "y", 3, "both");
    Gate gate(capacity);
    gate.Press(60s);
    QVERIFY(std::abs(gate.Press(600s) - 300) <= 3);
  }

  void Rate_OfAPoolThatApplicationsShareIsDividedByWork() {
    v1::Capacity capacity = OnePool(1);
    AddCost(capacity, "other", "x", 3);
    Gate gate(capacity);
    int own = 0, others = 0;
    for (int i = 0; i < 60'000; ++i) {
      own += gate.Ask("a");
      AdmissionRequest other = gate.Job("b");
      other.app_id = "other";
      others += gate.monitor.Admit(other).ok();
      gate.clock.Advance(10ms);
    }
    // The tenants share worker seconds, not jobs.
    QVERIFY2(std::abs(own + 3 * others - 600) < 8, std::to_string(own + 3 * others).c_str());
    QVERIFY2(std::abs(own - 300) < 12, std::to_string(own).c_str());
  }

  void Rate_IsDividedByTheProxiesShare() {
    v1::Capacity capacity = OnePool(0.1);
    capacity.set_share(0.25);
    Gate gate(capacity);
    gate.Press(60s);
    QVERIFY(std::abs(gate.Press(400s) - 1000) < 10);
    for (const double nonsense : {0.0, -1.0, 7.0, kNan}) {
      capacity.set_share(nonsense);
      gate.monitor.Update(capacity);
      gate.Press(20s);
      QVERIFY(std::abs(gate.Press(100s) - 1000) < 10);
    }
  }

  void Cost_GrowsWithUnits() {
    Gate gate(OnePool(0.1));
    gate.Press(60s);
    int admitted = 0;
    for (int i = 0; i < 60'000; ++i) {
      admitted += gate.Ask("", 0, 20);
      gate.clock.Advance(10ms);
    }
    QVERIFY(std::abs(admitted - 300) <= 3);
  }

  // The limit over any interval is rate × time + burst + one job. The burst is a second of the
  // pool.
  void Admit_NeverExceedsTheRate() {
    const unsigned seed = std::random_device()();
    qInfo("seed %u", seed);
    std::mt19937_64 random(seed);
    const auto uniform = [&](double low, double high) {
      return std::uniform_real_distribution(low, high)(random);
    };
    for (int round = 0; round < 30; ++round) {
      const double x = uniform(0.01, 2), y = uniform(0.01, 2);
      const int x_workers = 1 + static_cast<int>(random() % 4);
      const int y_workers = 1 + static_cast<int>(random() % 4);
      Gate gate(TwoStages(x, y, x_workers, y_workers));
      const int tenants = 1 + static_cast<int>(random() % 5);
      // For each pool: how far the admitted work is ahead of rate × time, and the least that it
      // was.
      double ahead_x = 0, least_x = 0, ahead_y = 0, least_y = 0, largest = 0;
      for (int i = 0; i < 3000; ++i) {
        const double step = uniform(0, 1) < 0.01 ? uniform(0, 30) : uniform(0, 0.1);
        gate.clock.Advance(base::FromSeconds(step));
        ahead_x -= step * x_workers;
        ahead_y -= step * y_workers;
        least_x = std::min(least_x, ahead_x);
        least_y = std::min(least_y, ahead_y);
        const double units = std::exp(uniform(-2, 2));
        largest = std::max(largest, units);
        if (random() % 100 == 0) gate.monitor.Update(TwoStages(x, y, x_workers, y_workers));
        const std::string tenant(1, static_cast<char>('a' + random() % tenants));
        const int priority = random() % 4 == 0 ? -1 : 0;
        if (!gate.Ask(tenant, priority, units)) continue;
        ahead_x += x * units;
        ahead_y += y * units;
        QVERIFY2(ahead_x - least_x <= x_workers + x * largest + 1e-6, std::to_string(i).c_str());
        QVERIFY2(ahead_y - least_y <= y_workers + y * largest + 1e-6, std::to_string(i).c_str());
      }
    }
  }

  void Overload_KeepsTheFullRate() {
    for (const int overload : {1, 2, 10, 100}) {
      Gate gate(OnePool(0.1));  // 10 jobs per second.
      std::mt19937_64 random(7);
      std::exponential_distribution gap(10.0 * overload);
      double past = 0;
      int admitted = 0;
      while (past < 300) {
        const double step = gap(random);
        past += step;
        gate.clock.Advance(base::FromSeconds(step));
        admitted += gate.Ask();
      }
      // At 1× some seconds are idle by chance, and others are full.
      const int least = overload == 1 ? 2700 : 2950;
      QVERIFY2(admitted >= least && admitted < 3020, std::to_string(admitted).c_str());
    }
  }

  void Unknown_CostsLetInTwoForEachWorker() {
    v1::Capacity capacity = TwoStages(1, 1, 8, 3);
    for (v1::StageCost& cost : *capacity.mutable_costs()) cost.set_samples(4);
    capacity.mutable_costs(0)->set_seconds_per_unit(1e6);  // The first job loaded the model.
    Gate gate(capacity);
    std::vector<AdmissionRequest> in;
    for (AdmissionRequest job = gate.Job(); gate.monitor.Admit(job).ok(); job = gate.Job())
      in.push_back(job);
    QCOMPARE(in.size(), std::size_t{6});
    const absl::Status refused = gate.monitor.Admit(gate.Job());
    QCOMPARE(Reason(refused), std::string("OVERLOADED"));
    QCOMPARE(Metadata(refused, "pool"), std::string("y"));
    QCOMPARE(RetryS(refused), 0.5);
    QVERIFY(refused.message().find("submit again when one has ended") != std::string_view::npos);
    gate.clock.Advance(100s);  // Time alone makes no cost known.
    QVERIFY(!gate.Ask());
    gate.monitor.End(in[0].uid);
    QVERIFY(gate.Ask());
    QVERIFY(!gate.Ask());
    capacity.set_share(0.3);
    gate.monitor.Update(capacity);
    for (std::size_t i = 1; i < 5; ++i) gate.monitor.End(in[i].uid);
    QVERIFY(!gate.Ask());
    gate.monitor.End(in[5].uid);
    QVERIFY(gate.Ask());
    QVERIFY(!gate.Ask());
    gate.monitor.Update(TwoStages(1, 1, 8, 3));
    gate.clock.Advance(10s);
    QCOMPARE(gate.Press(10s), 33);  // Three per second, and the three that were saved up.
  }

  // A job that has passed a pool frees its place there for the next job.
  void Unknown_FillsWidePoolsBehindNarrowOnes() {
    v1::Capacity capacity = TwoStages(1, 1, 1, 4);
    for (v1::StageCost& cost : *capacity.mutable_costs()) cost.set_samples(0);
    Gate gate(capacity);
    std::vector<AdmissionRequest> in;
    for (int i = 0; i < 20; ++i) {
      const AdmissionRequest job = gate.Job();
      if (gate.monitor.Admit(job).ok()) {
        in.push_back(job);
      } else {
        for (const AdmissionRequest& each : in) gate.monitor.Passed(each.uid, {"x", "another"});
      }
    }
    QCOMPARE(in.size(), std::size_t{8});
    QCOMPARE(Metadata(gate.monitor.Admit(gate.Job()), "pool"), std::string("y"));
    gate.monitor.Passed(in[0].uid, {"x", "y"});
    gate.monitor.Passed(in[0].uid, {"x", "y"});
    gate.monitor.End(in[0].uid);
    QVERIFY(gate.Ask());
    QVERIFY(!gate.Ask());
  }

  // A clock that is set must neither throw out the jobs that are in nor keep them for ever.
  void WallClockThatIsSet_LeavesTheDeadlinesOfTheJobsThatAreIn() {
    for (const base::Duration step : {-24h * 365, -24h, 24h, 24h * 365}) {
      Gate gate(OnePool(0.001));
      AdmissionRequest request = gate.Job();
      request.deadline = gate.clock.WallNow() + 60s;
      QVERIFY(gate.monitor.Admit(request).ok());
      gate.monitor.Keep(request.uid);
      gate.clock.StepWall(step);
      gate.clock.Advance(59s);
      QCOMPARE(gate.monitor.NextToCheck(1).size(), std::size_t{1});
      gate.clock.Advance(1s);
      QCOMPARE(gate.monitor.NextToCheck(1).size(), std::size_t{0});
      QCOMPARE(gate.monitor.in_flight(), 0);
    }
  }

  // Whatever happens to such a job, the application is not shut out for good.
  void Unknown_JobsThatNeverEndGiveTheirPlaceBack() {
    v1::Capacity capacity = OnePool(1);
    capacity.mutable_costs(0)->set_samples(0);
    Gate gate(capacity);
    const auto fill = [&] {
      std::vector<AdmissionRequest> in;
      for (int i = 0; i < 2; ++i) {
        in.push_back(gate.Job());
        in.back().deadline = gate.clock.WallNow() + 60s;
        if (!gate.monitor.Admit(in.back()).ok()) in.pop_back();
      }
      return in;
    };
    std::vector<AdmissionRequest> in = fill();
    QCOMPARE(in.size(), std::size_t{2});
    gate.clock.Advance(59s);
    QVERIFY(!gate.Ask());
    gate.clock.Advance(1s);  // The deadlines pass, and nobody says what became of the jobs.
    in = fill();
    QCOMPARE(in.size(), std::size_t{2});
    QVERIFY(!gate.Ask());
    gate.monitor.End(in[0].uid, RequestMonitor::Price::kTime);  // It was cancelled or lost.
    gate.monitor.End(in[0].uid);
    gate.monitor.Withdraw(in[1].uid);  // It never began.
    gate.monitor.Withdraw(in[1].uid);
    in = fill();
    QCOMPARE(in.size(), std::size_t{2});
    QVERIFY(!gate.Ask());
    // The pool disappears and comes back while the jobs are in.
    gate.monitor.Update({});
    gate.monitor.Update(capacity);
    QVERIFY(!gate.Ask());
    for (const AdmissionRequest& job : in) gate.monitor.End(job.uid);
    QCOMPARE(fill().size(), std::size_t{2});
  }

  void Unknown_AgainCostsWhatItDid() {
    v1::Capacity capacity = OnePool(1);
    Gate gate(capacity);
    QVERIFY(gate.Ask());
    capacity.mutable_costs(0)->Clear();
    capacity.mutable_costs(0)->set_app_id("app");
    capacity.mutable_costs(0)->set_stage("x");
    capacity.mutable_costs(0)->set_pool("x");
    int admitted = 0;
    for (int i = 0; i < 1000; ++i) {
      gate.monitor.Update(capacity);
      admitted += gate.Ask();
      gate.clock.Advance(10ms);
      if (i == 300) capacity.mutable_costs(0)->set_samples(1);  // One job, and it took no time.
    }
    QCOMPARE(admitted, 10);
    capacity.mutable_pools(0)->set_queued_jobs(100);
    gate.monitor.Update(capacity);
    gate.clock.Advance(80s);
    QVERIFY(!gate.Ask());
  }

  void Unknown_CostsNeedWorkersToo() {
    v1::Capacity capacity = OnePool(1, 0);
    capacity.mutable_costs(0)->set_samples(0);
    QCOMPARE(Reason(Gate(capacity).monitor.Admit(Gate(capacity).Job())), std::string("OVERLOADED"));
    QVERIFY(!Gate(OnePool(0, 0)).Ask());  // A known cost of nothing needs workers as well.
  }

  void Refusal_SaysWhereWhenAndWhoHasRoom() {
    v1::Capacity capacity = TwoStages(1, 3);
    const auto add = [&](const char* set, double headroom) {
      capacity.add_sets()->set_workflow_set(set);
      capacity.mutable_sets()->rbegin()->set_headroom(headroom);
    };
    add("default", 0);
    add("set-2", 0.1);
    add("set-3", 0.756);
    add("set-4", kNan);
    Gate gate(capacity);
    QVERIFY(gate.Ask());  // It costs 3 s at y, which had saved up 1 s: the debt is 2 s.
    const absl::Status refused = gate.monitor.Admit(gate.Job());
    QCOMPARE(refused.code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(refused), std::string("OVERLOADED"));
    QCOMPARE(Metadata(refused, "pool"), std::string("y"));
    QCOMPARE(Metadata(refused, "headroom"), std::string("set-3=0.76,set-2=0.10,set-4=0.00"));
    QCOMPARE(RetryS(refused), 2.0);
    gate.clock.Advance(1999ms);
    QVERIFY(!gate.Ask());
    gate.clock.Advance(2ms);
    QVERIFY(gate.Ask());
  }

  void Tenants_ThatAskMuchMoreGetNoMore_data() {
    QTest::addColumn<double>("seconds");  // A job's.
    QTest::addColumn<double>("modest");   // Requests per second.
    QTest::addColumn<double>("greedy");
    QTest::addColumn<double>("share");  // The least part of the pool that the modest one gets.
    QTest::newRow("short jobs") << 0.1 << 10.0 << 1000.0 << 0.48;
    QTest::newRow("jobs of a second") << 1.0 << 2.0 << 200.0 << 0.45;
    QTest::newRow("jobs longer than the burst") << 5.0 << 2.0 << 200.0 << 0.45;
    QTest::newRow("one that wants less than half") << 0.1 << 2.0 << 200.0 << 0.19;
  }
  void Tenants_ThatAskMuchMoreGetNoMore() {
    QFETCH(double, seconds);
    QFETCH(double, modest);
    QFETCH(double, greedy);
    QFETCH(double, share);
    Gate gate(OnePool(seconds));
    std::mt19937_64 random(11);
    std::exponential_distribution gap(modest + greedy);
    std::bernoulli_distribution is_modest(modest / (modest + greedy));
    double past = 0;
    double of_modest = 0, of_greedy = 0;
    while (past < 1000) {
      const double step = gap(random);
      past += step;
      gate.clock.Advance(base::FromSeconds(step));
      if (is_modest(random)) {
        of_modest += gate.Ask("modest") ? seconds : 0;
      } else {
        of_greedy += gate.Ask("greedy") ? seconds : 0;
      }
    }
    const std::string shown = std::to_string(of_modest) + " " + std::to_string(of_greedy);
    QVERIFY2(of_modest / 1000 >= share, shown.c_str());
    // The greedy one gets everything that nobody else wants.
    QVERIFY2((of_modest + of_greedy) / 1000 > 0.97, shown.c_str());
    QVERIFY2(of_modest / 1000 < 0.53, shown.c_str());
  }

  void Tenants_ThreeOfThemShareByWaterFilling() {
    Gate gate(OnePool(0.1));  // 10 per second. One tenant wants 1, the others 10 and 100.
    std::mt19937_64 random(13);
    const std::vector<std::pair<std::string, double>> offers = {{"a", 1}, {"b", 10}, {"c", 100}};
    std::discrete_distribution<std::size_t> who({1, 10, 100});
    std::exponential_distribution gap(111.0);
    std::map<std::string, int> admitted;
    for (double past = 0; past < 1000;) {
      const double step = gap(random);
      past += step;
      gate.clock.Advance(base::FromSeconds(step));
      const std::string& tenant = offers[who(random)].first;
      admitted[tenant] += gate.Ask(tenant);
    }
    QVERIFY2(admitted["a"] > 900, std::to_string(admitted["a"]).c_str());
    QVERIFY2(std::abs(admitted["b"] - 4500) < 250, std::to_string(admitted["b"]).c_str());
    QVERIFY2(std::abs(admitted["c"] - 4500) < 250, std::to_string(admitted["c"]).c_str());
  }

  void Tenants_ReasonTellsAShareFromAnEmptyPool() {
    Gate gate(OnePool(0.4));
    QVERIFY(gate.Ask("a"));
    QVERIFY(gate.Ask("a"));
    QVERIFY(gate.Ask("a"));  // This leaves 0.2 s of debt.
    QCOMPARE(Reason(gate.monitor.Admit(gate.Job("b"))), std::string("OVERLOADED"));
    gate.clock.Advance(300ms);
    const absl::Status share = gate.monitor.Admit(gate.Job("a"));
    QCOMPARE(Reason(share), std::string("TENANT_SHARE"));
    QVERIFY(RetryS(share) > 0);
    QVERIFY(gate.Ask("b"));
  }

  void Tenants_APauseDoesNotPayADebt() {
    Gate gate(OnePool(100));
    QVERIFY(gate.Ask("a"));
    gate.clock.Advance(20s);
    gate.monitor.Update(OnePool(100));
    QVERIFY(!gate.Ask("b"));
    gate.clock.Advance(79500ms);  // The pool is free again, and "a" has had all of its tokens.
    QCOMPARE(Reason(gate.monitor.Admit(gate.Job("a"))), std::string("TENANT_SHARE"));
    QVERIFY(gate.Ask("b"));
  }

  void Tenants_AreBounded() {
    Gate gate(OnePool(0.001));
    int admitted = 0;
    for (int i = 0; i < 20'000; ++i) {
      admitted += gate.Ask("tenant-" + std::to_string(i));
      gate.clock.Advance(1ms);
    }
    QVERIFY2(admitted > 19'900, std::to_string(admitted).c_str());
  }

  void Priority_LowTakesWhatIsLeftHighMayGoIntoDebt() {
    Gate gate(OnePool(0.15));
    int low = 0, normal = 0, high = 0;
    while (gate.Ask("", -1)) ++low;
    while (gate.Ask("", 0)) ++normal;
    while (gate.Ask("", 50)) ++high;
    QCOMPARE(low, 4);     // The level is 0.4 s.
    QCOMPARE(normal, 3);  // The level is −0.05 s.
    QCOMPARE(high, 7);    // The level is −1.1 s.
    gate.clock.Advance(150ms);
    QVERIFY(!gate.Ask("", 0));
    QVERIFY(gate.Ask("", 1));
  }

  void Deadline_ThatCannotBeMetIsRefusedWithTheEstimate() {
    Gate gate(TwoStages(1, 3, 10, 10));
    AdmissionRequest request = gate.Job();
    request.deadline = gate.clock.WallNow() + 3900ms;
    const absl::Status refused = gate.monitor.Admit(request);
    QCOMPARE(refused.code(), absl::StatusCode::kFailedPrecondition);
    QCOMPARE(Reason(refused), std::string("DEADLINE_TOO_SHORT"));
    QCOMPARE(Metadata(refused, "estimate_ms"), std::string("4000"));
    QCOMPARE(Metadata(refused, "pool"), std::string("y"));
    QCOMPARE(RetryS(refused), -1.0);
    request.deadline = gate.clock.WallNow() + 4100ms;
    QVERIFY(gate.monitor.Admit(request).ok());
    // The stages run at the same time now, so the longest way counts.
    AdmissionRequest branched = gate.Job();
    branched.stages[1].after.clear();
    branched.deadline = gate.clock.WallNow() + 3100ms;
    QVERIFY(gate.monitor.Admit(branched).ok());
    branched.uid = base::Uid::GenerateRandom();
    branched.deadline = gate.clock.WallNow() + 2900ms;
    QVERIFY(!gate.monitor.Admit(branched).ok());
  }

  // Transfer times are differences between the clocks of two hosts.
  void Deadline_DoesNotDependOnTheClocksOfOtherHosts() {
    for (const double transfer_s : {0.0, 1.5, 86400.0}) {
      v1::Capacity capacity = OnePool(1);
      capacity.mutable_costs(0)->set_transfer_s(transfer_s);
      Gate gate(capacity);
      AdmissionRequest request = gate.Job();
      request.deadline = gate.clock.WallNow() + 900ms;
      QCOMPARE(Metadata(gate.monitor.Admit(request), "estimate_ms"), std::string("1000"));
      request.deadline = gate.clock.WallNow() + 1100ms;
      QVERIFY(gate.monitor.Admit(request).ok());
    }
  }

  void Deadline_CountsTheDebt() {
    Gate gate(OnePool(3));
    QVERIFY(gate.Ask());
    AdmissionRequest request = gate.Job();
    request.deadline = gate.clock.WallNow() + 4s;
    const absl::Status refused = gate.monitor.Admit(request);  // 2 s of debt and 3 s of work.
    QCOMPARE(Reason(refused), std::string("DEADLINE_TOO_SHORT"));
    QCOMPARE(Metadata(refused, "estimate_ms"), std::string("5000"));
    QCOMPARE(RetryS(refused), 2.0);
    request.deadline = gate.clock.WallNow() + 6s;
    QCOMPARE(Reason(gate.monitor.Admit(request)), std::string("OVERLOADED"));
  }

  void Deadline_BoundsWhatOneJobMayTake() {
    Gate gate(OnePool(1));
    for (const double units : {1e9, 1e18, std::numeric_limits<double>::infinity(), kNan, -1.0}) {
      AdmissionRequest request = gate.Job("", units);
      const bool known = std::isfinite(units) && units > 0;
      QCOMPARE(gate.monitor.Admit(request).ok(), !known);
      gate.monitor.Withdraw(request.uid);
    }
    QVERIFY(gate.Ask());
  }

  void End_RefundsOnlyWhatNeverBegan() {
    Gate gate(OnePool(10));
    const AdmissionRequest first = gate.Job();
    QVERIFY(gate.monitor.Admit(first).ok());
    gate.monitor.Withdraw(first.uid);
    gate.monitor.Withdraw(first.uid);
    const AdmissionRequest second = gate.Job();
    QVERIFY(gate.monitor.Admit(second).ok());
    gate.monitor.Keep(second.uid);
    gate.monitor.Withdraw(second.uid);
    gate.monitor.End(second.uid);
    gate.monitor.Withdraw(second.uid);
    QVERIFY(!gate.Ask());
    QCOMPARE(gate.monitor.levels().size(), std::size_t{1});
    QCOMPARE(gate.monitor.levels()[0].seconds, -9.0);
  }

  void End_OfACancelledJob_GivesBackWhatNobodyComputed() {
    Gate gate(OnePool(10));
    const AdmissionRequest job = gate.Job();
    QVERIFY(gate.monitor.Admit(job).ok());
    QVERIFY(!gate.Ask());
    gate.clock.Advance(2s);
    const double before = gate.monitor.levels()[0].seconds;
    gate.monitor.End(job.uid, RequestMonitor::Price::kTime);
    // The job was in for 2 s of its 10 s.
    QCOMPARE(gate.monitor.levels()[0].seconds, before + 8);
  }

  void Admit_AJobThatIsInCostsNothing() {
    Gate gate(OnePool(10));
    const AdmissionRequest request = gate.Job();
    QVERIFY(gate.monitor.Admit(request).ok());
    gate.monitor.Keep(request.uid);
    for (int i = 0; i < 3; ++i) {
      QVERIFY(gate.monitor.Admit(request).ok());
      gate.monitor.Keep(request.uid);
    }
    QCOMPARE(gate.monitor.levels()[0].seconds, -9.0);
    QCOMPARE(gate.monitor.demands()[0].admitted(), std::uint64_t{1});
  }

  void Capacity_BucketsKeepTheirLevel() {
    Gate gate(OnePool(10));
    QVERIFY(gate.Ask());
    gate.monitor.Update(OnePool(10, 9));  // The pool grows and shrinks, disappears and comes back.
    gate.monitor.Update(OnePool(10, 1));
    QCOMPARE(gate.monitor.levels()[0].seconds, -9.0);
    gate.monitor.Update({});
    QVERIFY(gate.monitor.levels().empty());
    QVERIFY(gate.Ask());  // A capacity that names no pool limits nothing.
    gate.monitor.Update(OnePool(10, 1));
    QCOMPARE(gate.monitor.levels()[0].seconds, -9.0);
    QVERIFY(!gate.Ask());
    gate.clock.Advance(100s);
    QCOMPARE(gate.monitor.levels()[0].seconds, 1.0);
    gate.monitor.Update(OnePool(0.1, 10));
    gate.clock.Advance(1s);
    QCOMPARE(gate.monitor.levels()[0].seconds, 10.0);
    gate.monitor.Update(OnePool(0.1, 2));
    QCOMPARE(gate.monitor.levels()[0].seconds, 2.0);
  }

  void Capacity_WithoutWorkersTakesNothing() {
    Gate gate(OnePool(1, 0));
    const absl::Status refused = gate.monitor.Admit(gate.Job());
    QCOMPARE(Reason(refused), std::string("OVERLOADED"));
    QCOMPARE(Metadata(refused, "pool"), std::string("x"));
    QCOMPARE(RetryS(refused), 1.0);
    gate.monitor.Update(OnePool(1, 1));
    gate.clock.Advance(1ms);
    QVERIFY(gate.Ask());
    gate.monitor.Update(OnePool(1, -5));
    gate.clock.Advance(100s);
    QVERIFY(!gate.Ask());
  }

  void Capacity_ThatMakesNoSenseIsNotKnown() {
    v1::Capacity capacity = OnePool(kNan);
    AddCost(capacity, "app", "y", 5, "nowhere");
    AddCost(capacity, "app", "z", -5, "x");
    AddCost(capacity, "app", "u", std::numeric_limits<double>::infinity(), "x");
    capacity.mutable_costs(1)->set_units_per_job(kNan);
    Gate gate(capacity);
    for (int i = 0; i < 3; ++i) {
      AdmissionRequest request = gate.Job();
      request.stages.push_back({"z", 1, {}});
      request.stages.push_back({"u", 1, {}});
      request.stages.push_back({"nobody measured it", 1, {}});
      QCOMPARE(gate.monitor.Admit(request).ok(), i < 2);
    }
    QCOMPARE(gate.monitor.levels()[0].seconds, 1.0);
  }

  void Backlog_ClosesThePoolUntilItIsWorkedOff() {
    v1::Capacity capacity = OnePool(1, 2);
    capacity.mutable_pools(0)->set_queued_jobs(2);  // A job for each worker, and a second of both.
    Gate gate(capacity);
    QCOMPARE(gate.monitor.levels()[0].seconds, 2.0);
    capacity.mutable_pools(0)->set_queued_jobs(10);
    gate.monitor.Update(capacity);
    gate.monitor.Update(capacity);
    const absl::Status refused = gate.monitor.Admit(gate.Job());
    QCOMPARE(Reason(refused), std::string("OVERLOADED"));
    QCOMPARE(RetryS(refused), 3.0);
    AdmissionRequest hasty = gate.Job();
    hasty.deadline = gate.clock.WallNow() + 3500ms;
    QCOMPARE(Metadata(gate.monitor.Admit(hasty), "estimate_ms"), std::string("4000"));
    gate.clock.Advance(2900ms);
    QVERIFY(!gate.Ask());
    gate.clock.Advance(200ms);
    QVERIFY(gate.Ask());  // Without news, three seconds of the backlog count as done.
    capacity.mutable_pools(0)->set_queued_jobs(100);
    gate.monitor.Update(capacity);
    QVERIFY(!gate.Ask());
    capacity.mutable_pools(0)->set_queued_jobs(-3);
    gate.monitor.Update(capacity);
    QVERIFY(!gate.Ask());  // The bucket fills by itself. A report never fills it.
    gate.clock.Advance(48100ms);
    QVERIFY(gate.Ask());
    // One long job for each worker does not count as a backlog.
    v1::Capacity slow = OnePool(200, 2);
    slow.mutable_pools(0)->set_queued_jobs(2);
    QVERIFY(Gate(slow).Ask());
    slow.mutable_pools(0)->set_queued_jobs(3);
    QVERIFY(!Gate(slow).Ask());
  }

  // What a backlog takes from the bucket, it takes from the tenants that have saved something up.
  // Otherwise a tenant could be refused for a share that nobody has.
  void Backlog_TakesFromWhatTenantsHaveSaved() {
    v1::Capacity capacity = OnePool(0.1);
    Gate gate(capacity);
    QVERIFY(gate.Ask("saver"));
    while (gate.Ask("busy")) {
    }
    QCOMPARE(Reason(gate.monitor.Admit(gate.Job("busy"))), std::string("TENANT_SHARE"));
    capacity.mutable_pools(0)->set_queued_jobs(11);  // 1.1 s: nothing is left.
    gate.monitor.Update(capacity);
    QCOMPARE(Reason(gate.monitor.Admit(gate.Job("saver"))), std::string("OVERLOADED"));
    gate.clock.Advance(300ms);
    QVERIFY(gate.Ask("busy"));  // Both have half of what has come in since.
    QVERIFY(gate.Ask("saver"));
  }
};

}  // namespace onepiece::admission

ONEPIECE_TEST(onepiece::admission::RequestMonitorTest)
#include "request_monitor_test.moc"
