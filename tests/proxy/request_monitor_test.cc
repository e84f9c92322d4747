#include "cluster/proxy/request_monitor.h"

#include <QtTest>

#include "cluster/base/status.h"

namespace onepiece::proxy {
namespace {

using namespace std::chrono_literals;

}  // namespace

class RequestMonitorTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Admit_RefusesAtTheLimitAndSaysWhenToRetry() {
    base::ManualClock clock;
    RequestMonitor monitor(2, clock);
    const base::WallTime deadline = clock.WallNow() + 10s;
    const base::Uid first = base::Uid::GenerateRandom();
    QVERIFY(monitor.Admit(first, deadline).ok());
    QVERIFY(monitor.Admit(base::Uid::GenerateRandom(), deadline).ok());
    const absl::Status refused = monitor.Admit(base::Uid::GenerateRandom(), deadline);
    QCOMPARE(refused.code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(base::GetReason(refused).reason, std::string("QUOTA"));
    QVERIFY(std::stoi(base::GetReason(refused).metadata.at("retry_after_ms")) > 0);
    QVERIFY(monitor.Admit(first, deadline).ok());
    QCOMPARE(monitor.in_flight(), 2);
    monitor.End(first);
    monitor.End(first);
    QCOMPARE(monitor.in_flight(), 1);
    QVERIFY(monitor.Admit(base::Uid::GenerateRandom(), deadline).ok());
  }

  void Admit_ForgetsJobsPastTheirDeadline() {
    base::ManualClock clock;
    RequestMonitor monitor(1, clock);
    QVERIFY(monitor.Admit(base::Uid::GenerateRandom(), clock.WallNow() + 10s).ok());
    clock.Advance(9s);
    QVERIFY(!monitor.Admit(base::Uid::GenerateRandom(), clock.WallNow() + 10s).ok());
    clock.Advance(1s);
    QVERIFY(monitor.Admit(base::Uid::GenerateRandom(), clock.WallNow() + 10s).ok());
    QCOMPARE(monitor.in_flight(), 1);
  }

  void NextToCheck_GoesRound() {
    base::ManualClock clock;
    RequestMonitor monitor(10, clock);
    std::vector<base::Uid> uids;
    for (int i = 0; i < 5; ++i) {
      uids.push_back(base::Uid::GenerateRandom());
      QVERIFY(monitor.Admit(uids.back(), clock.WallNow() + 10s).ok());
    }
    QVERIFY((monitor.NextToCheck(3) == std::vector{uids[0], uids[1], uids[2]}));
    monitor.End(uids[3]);
    QVERIFY((monitor.NextToCheck(3) == std::vector{uids[4], uids[0], uids[1]}));
    QCOMPARE(monitor.NextToCheck(100).size(), std::size_t{4});
    clock.Advance(10s);
    QVERIFY(monitor.NextToCheck(100).empty());
  }
};

}  // namespace onepiece::proxy

QTEST_GUILESS_MAIN(onepiece::proxy::RequestMonitorTest)
#include "request_monitor_test.moc"
