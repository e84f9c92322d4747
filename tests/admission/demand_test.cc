// Tests who pays for a job, and which jobs count as demand.
#include <QtTest>
#include <cmath>
#include <thread>

#include "tests/admission/gate.h"
#include "tests/test_main.h"

namespace onepiece::admission {

class DemandTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Withdraw_IsTheLastCallersWord() {
    Gate gate(OnePool(10));
    const AdmissionRequest both = gate.Job();  // Two calls ask with one id at the same time.
    QVERIFY(gate.monitor.Admit(both).ok());
    QVERIFY(gate.monitor.Admit(both).ok());
    QCOMPARE(gate.monitor.levels()[0].seconds, -9.0);
    gate.monitor.Withdraw(both.uid);  // The second call begins the job.
    QCOMPARE(gate.monitor.in_flight(), 1);
    gate.monitor.Keep(both.uid);
    QVERIFY(gate.monitor.Admit(both).ok());
    gate.monitor.Withdraw(both.uid);
    QCOMPARE(gate.monitor.in_flight(), 1);
    QCOMPARE(gate.monitor.levels()[0].seconds, -9.0);
    gate.monitor.End(both.uid);
    gate.clock.Advance(10s);
    const AdmissionRequest neither = gate.Job();
    QVERIFY(gate.monitor.Admit(neither).ok());
    QVERIFY(gate.monitor.Admit(neither).ok());
    gate.monitor.Withdraw(neither.uid);
    gate.monitor.Withdraw(neither.uid);
    QCOMPARE(gate.monitor.in_flight(), 0);
    QCOMPARE(gate.monitor.levels()[0].seconds, 1.0);
    QCOMPARE(gate.monitor.demands()[0].admitted(), std::uint64_t{1});
  }

  void Withdraw_FromManyThreadsLeavesWhatBegan() {
    Gate gate(OnePool(0.001, 1000));
    for (int round = 0; round < 200; ++round) {
      const AdmissionRequest job = gate.Job();
      const auto call = [&](bool begins) {
        if (!gate.monitor.Admit(job).ok()) return;
        if (begins) {
          gate.monitor.Keep(job.uid);
        } else {
          gate.monitor.Withdraw(job.uid);
        }
      };
      std::vector<std::thread> others;
      for (int i = 0; i < 3; ++i) others.emplace_back(call, false);
      call(true);
      for (std::thread& other : others) other.join();
      QCOMPARE(gate.monitor.in_flight(), round + 1);
    }
    QVERIFY(std::abs(gate.monitor.levels()[0].seconds - (1000 - 0.2)) < 1e-6);
    QCOMPARE(gate.monitor.demands()[0].admitted(), std::uint64_t{200});
  }

  void Withdraw_GivesBackToWhoHasPaid() {
    for (const bool cancelled : {false, true}) {
      Gate gate(OnePool(10));
      QVERIFY(gate.Ask("b"));  // Both will have an account, and "b" is in debt.
      gate.clock.Advance(9500ms);
      const AdmissionRequest request = gate.Job("a");
      QVERIFY(gate.monitor.Admit(request).ok());
      QVERIFY(!gate.Ask("a"));
      if (cancelled) {
        gate.monitor.End(request.uid, RequestMonitor::Price::kTime);
      } else {
        gate.monitor.Withdraw(request.uid);
      }
      QCOMPARE(gate.monitor.levels()[0].seconds, 0.5);
      QCOMPARE(Reason(gate.monitor.Admit(gate.Job("b"))), std::string("TENANT_SHARE"));
      QVERIFY(gate.Ask("a"));
    }
  }

  // Refused jobs are asked for too. The stage y has no terms.
  void Demands_SumTheTermsOfEachStage() {
    Gate gate(OnePool(0.1), 1, 1);
    const auto ask = [&](std::vector<double> terms) {
      AdmissionRequest job = gate.Job();
      job.stages[0].terms = std::move(terms);
      const bool in = gate.monitor.Admit(job).ok();
      if (in) gate.monitor.Keep(job.uid);
      return in;
    };
    QVERIFY(ask({1, 40}));
    QVERIFY(!ask({1, 1600}));
    const v1::Demand demand = gate.monitor.demands().at(0);
    QCOMPARE(demand.stage_terms_size(), 1);
    QCOMPARE(demand.stage_terms(0).stage(), std::string("x"));
    QCOMPARE(demand.stage_terms(0).sums(0), 2.0);
    QCOMPARE(demand.stage_terms(0).sums(1), 1640.0);
    // The workflow has another formula now.
    QVERIFY(!ask({5}));
    QCOMPARE(gate.monitor.demands().at(0).stage_terms(0).sums_size(), 1);
    QCOMPARE(gate.monitor.demands().at(0).stage_terms(0).sums(0), 5.0);
  }

  void Demands_CountJobsNotAttempts() {
    Gate gate(OnePool(10));
    QVERIFY(gate.Ask());
    const AdmissionRequest job = gate.Job("", 3);
    for (int i = 0; i < 10; ++i) QVERIFY(!gate.monitor.Admit(job).ok());
    AdmissionRequest hasty = gate.Job();
    hasty.deadline = gate.clock.WallNow() + 1s;
    QCOMPARE(Reason(gate.monitor.Admit(hasty)), std::string("DEADLINE_TOO_SHORT"));
    gate.clock.Advance(60s);
    QVERIFY(gate.monitor.Admit(job).ok());
    gate.monitor.Keep(job.uid);
    const AdmissionRequest invalid = gate.Job();
    gate.clock.Advance(60s);
    QVERIFY(gate.monitor.Admit(invalid).ok());
    gate.monitor.Withdraw(invalid.uid);
    const v1::Demand demand = gate.monitor.demands()[0];
    QCOMPARE(demand.rejected(), std::uint64_t{1});
    QCOMPARE(demand.admitted(), std::uint64_t{0});  // The first one has not been kept yet.
    QCOMPARE(demand.units(), 3.0);
  }

  void Demands_ForgetOldRefusals() {
    Gate gate(OnePool(1000));
    QVERIFY(gate.Ask());
    const AdmissionRequest job = gate.Job();
    QVERIFY(!gate.monitor.Admit(job).ok());
    for (std::size_t i = 0; i < RequestMonitor::kMaxRefused; ++i) QVERIFY(!gate.Ask());
    QVERIFY(!gate.monitor.Admit(job).ok());
    QCOMPARE(gate.monitor.demands()[0].rejected(), std::uint64_t{RequestMonitor::kMaxRefused + 2});
  }

  void Demands_CountWhatWasAskedFor() {
    Gate gate(OnePool(10));
    const auto ask = [&](const AdmissionRequest& request) {
      const bool in = gate.monitor.Admit(request).ok();
      gate.monitor.Keep(request.uid);
      return in;
    };
    QVERIFY(ask(gate.Job()));
    QVERIFY(!ask(gate.Job("", 5)));
    AdmissionRequest other = gate.Job();
    other.app_id = "other";
    QVERIFY(ask(other));
    const auto demands = gate.monitor.demands();
    QCOMPARE(demands.size(), std::size_t{2});
    QCOMPARE(demands[0].app_id(), std::string("app"));
    QCOMPARE(demands[0].admitted(), std::uint64_t{1});
    QCOMPARE(demands[0].rejected(), std::uint64_t{1});
    QCOMPARE(demands[0].units(), 6.0);
    QCOMPARE(demands[1].admitted(), std::uint64_t{1});
  }

  // As many applications are counted as a cluster may have. The names of those that are gone make
  // room.
  void Demands_CountEveryApplicationThatThereIs() {
    v1::Capacity capacity = OnePool(0);
    for (std::size_t i = 1; i < RequestMonitor::kMaxApps; ++i)
      AddCost(capacity, "app-" + std::to_string(i), "x", 0);
    Gate gate(capacity);
    const auto ask = [&](const std::string& app) {
      AdmissionRequest request = gate.Job();
      request.app_id = app;
      QVERIFY(gate.monitor.Admit(request).ok());
      gate.monitor.Keep(request.uid);
    };
    ask("app");
    for (std::size_t i = 2; i < RequestMonitor::kMaxApps; ++i) ask("app-" + std::to_string(i));
    for (int i = 0; i < 3; ++i) ask("gone-" + std::to_string(i));
    ask("app-1");
    const auto demands = gate.monitor.demands();
    QCOMPARE(demands.size(), RequestMonitor::kMaxApps);
    std::size_t bytes = 0;
    for (const v1::Demand& demand : demands) {
      QVERIFY(demand.app_id().starts_with("app"));
      QCOMPARE(demand.admitted(), std::uint64_t{1});
      bytes += demand.ByteSizeLong();
    }
    QVERIFY(bytes < 100 * 1024);
  }
};

}  // namespace onepiece::admission

ONEPIECE_TEST(onepiece::admission::DemandTest)
#include "demand_test.moc"
