// Tests what proxies promise of one pool together.
#include <QtTest>
#include <cmath>
#include <map>

#include "tests/admission/gate.h"
#include "tests/test_main.h"

namespace onepiece::admission {
namespace {

v1::Capacity WithOthers(double seconds, double share, double others_s, int workers = 1) {
  v1::Capacity capacity = OnePool(seconds, workers);
  capacity.set_share(share);
  capacity.mutable_pools(0)->set_others_debt_s(others_s);
  return capacity;
}

double DebtOf(const Gate& gate) {
  const auto debts = gate.monitor.debts();
  return debts.empty() ? 0 : debts[0].seconds();
}

bool IsAbout(double actual, double expected) {
  const bool is = std::abs(actual - expected) <= 1e-6;
  if (!is) qWarning("%g is not %g", actual, expected);
  return is;
}

}  // namespace

class DebtsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Debts_AreWhatThePoolStillHasToDo() {
    Gate gate(OnePool(10));
    QVERIFY(gate.monitor.debts().empty());
    const AdmissionRequest job = gate.Job();
    QVERIFY(gate.monitor.Admit(job).ok());
    QCOMPARE(gate.monitor.debts()[0].pool(), std::string("x"));
    QVERIFY(IsAbout(DebtOf(gate), 10));
    gate.clock.Advance(4s);
    QVERIFY(IsAbout(DebtOf(gate), 6));
    gate.monitor.End(job.uid);  // Earlier than its cost says.
    QVERIFY(gate.monitor.debts().empty());
  }

  // The pool works on what all have promised, and not on ours first.
  void Debts_AreWorkedOffInProportion() {
    Gate gate(WithOthers(10, 0.5, 0));
    QVERIFY(gate.Ask());
    gate.monitor.Update(WithOthers(10, 0.5, 30));
    gate.clock.Advance(4s);
    QVERIFY(IsAbout(DebtOf(gate), 9));
  }

  void Debts_OfAJobThatBeganNowhereAreGone() {
    Gate gate(OnePool(10));
    const AdmissionRequest job = gate.Job();
    QVERIFY(gate.monitor.Admit(job).ok());
    gate.monitor.Withdraw(job.uid);
    QVERIFY(gate.monitor.debts().empty());
  }

  void Debts_AreThoseOfAtMost256Pools() {
    v1::Capacity capacity;
    capacity.set_share(1);
    Gate gate(capacity);
    AdmissionRequest job = gate.Job();
    job.stages.clear();
    for (int i = 0; i < 300; ++i) {
      const std::string pool = "pool-" + std::to_string(i);
      AddPool(capacity, pool, 1);
      AddCost(capacity, "app", pool, i + 1);
      job.stages.push_back({pool, 1, {}});
    }
    gate.monitor.Update(capacity);
    QVERIFY(gate.monitor.Admit(job).ok());
    const auto debts = gate.monitor.debts();
    QCOMPARE(debts.size(), RequestMonitor::kMaxDebts);
    for (const v1::PoolDebt& debt : debts) QVERIFY(debt.seconds() > 44);
  }

  void OthersPromises_AreWorkBeforeOurs() {
    Gate gate(WithOthers(10, 0.1, 30));
    const absl::Status refused = gate.monitor.Admit(gate.Job());
    QCOMPARE(Reason(refused), std::string("OVERLOADED"));
    QVERIFY(IsAbout(RetryS(refused), 29));  // Until one second of them is left.
    gate.clock.Advance(28s);
    QVERIFY(!gate.Ask());
    gate.clock.Advance(1100ms);
    QVERIFY(gate.Ask());
  }

  void OthersPromises_CountInTheEstimate() {
    Gate gate(WithOthers(2, 0.1, 0, 4));
    AdmissionRequest job = gate.Job();
    job.priority = 1;
    job.deadline = gate.clock.WallNow() + 5s;
    gate.monitor.Update(WithOthers(2, 0.1, 40, 4));  // Ten seconds of four workers.
    const absl::Status refused = gate.monitor.Admit(job);
    QCOMPARE(Reason(refused), std::string("DEADLINE_TOO_SHORT"));
    QCOMPARE(Metadata(refused, "estimate_ms"), std::string("11000"));  // 40 / 4 - 1 + 2.
  }

  // A proxy with a small share that has let in a large job is told its wait by the pool, not by its
  // share: that grows.
  void ASmallShare_IsNoReasonToStayAway() {
    Gate gate(WithOthers(2, 0.01, 0, 4));
    QVERIFY(gate.Ask());
    const absl::Status refused = gate.monitor.Admit(gate.Job());
    QCOMPARE(Reason(refused), std::string("OVERLOADED"));
    QVERIFY(IsAbout(RetryS(refused), 1));
    // A long queue is everybody's.
    v1::Capacity busy = WithOthers(2, 0.01, 0, 4);
    busy.mutable_pools(0)->set_queued_jobs(16);  // Eight seconds, of which three may wait.
    gate.monitor.Update(busy);
    QVERIFY(IsAbout(RetryS(gate.monitor.Admit(gate.Job())), 5));
  }

  void OthersPromises_ThatAreNonsenseCountAsNone() {
    for (const double others : {kNan, -5.0, -kNan, std::numeric_limits<double>::infinity()}) {
      Gate gate(WithOthers(1, 1, others));
      QVERIFY(gate.Ask());
    }
  }
};

}  // namespace onepiece::admission

ONEPIECE_TEST(onepiece::admission::DebtsTest)
#include "debts_test.moc"
